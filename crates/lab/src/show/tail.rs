//! What is said after tables: what is not as it should be, and what is not there.

use report::CheckRow;

use super::shown::{ONLY_SIM, Shown};

/// Skipped measurements named one by one; the rest is counted.
const NAMED_SKIPS: usize = 4;

/// What is not as it should be, and what is not there and why.
pub(super) fn tail(shown: &Shown) -> String {
    let rows = shown.report.checks.iter().flat_map(|table| &table.rows);
    let mut lines: Vec<String> = rows.filter(|row| row.failed()).map(|row| failed_check(shown, row)).collect();
    for skipped in &shown.skipped {
        lines.push(format!("skipped: {} {}: {}", skipped.target, skipped.what, skipped.reason));
    }
    lines.extend(shown.without_causes.iter().map(|target| format!("skipped: {target} time by cause: {ONLY_SIM}")));
    for cell in &shown.cells {
        let skips = &cell.measured.skipped;
        let who = format!("{} {}", cell.key.target, cell.key.case);
        let named = skips.iter().take(NAMED_SKIPS);
        lines.extend(named.map(|skip| format!("skipped: {who} {}: {}", skip.what, skip.reason)));
        if let Some(more) = skips.len().checked_sub(NAMED_SKIPS).filter(|more| *more > 0) {
            lines.push(format!(
                "skipped: {who}: {more} more counters for the same kind of reason (--format json names them)"
            ));
        }
    }
    if shown.missing > 0 {
        lines.push(format!("missing: {} cells have no result yet", shown.missing));
    }
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

/// Names the kernel only where there are several of a target.
pub(super) fn failed_check(shown: &Shown, row: &CheckRow) -> String {
    let kernels = shown.systems.iter().filter(|system| system.target == row.column.target).count();
    let place = if kernels > 1 { row.lines.join(" ") } else { row.column.target.to_string() };
    let runs = if row.cells > 1 {
        format!(", in {} of {} runs", row.cells - row.cells_within, row.cells)
    } else {
        String::new()
    };
    let CheckRow { case, check, .. } = row;
    format!(
        "check failed: {place} {case} {}: expected {}, found {} (tolerance {}{runs})",
        check.name, check.expected, check.found, check.tolerance
    )
}
