//! Cells that are worked on elsewhere: lines out, a worker, and lines back.

use std::{
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
};

use lab::{
    progress::RunError,
    run::travel::{self, Lines},
    usage::UsageError,
};
use linux::worker::{LOOK_UP, stop_when_unread};

use crate::{args, print};

/// Prints a line for each cell.
pub(crate) fn cells(args: &args::Cells) -> anyhow::Result<ExitCode> {
    let lines = travel::lines(&args.wanted().request_of_cells()?)?;
    print(&in_lines(&lines))
}

fn in_lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Works on each line of stdin, and prints each result when it is there. Stops when the process that reads these has ended.
pub(crate) fn worker() -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    stop_when_unread(&stop)?;
    // A thread of its own reads: reading goes on after a signal.
    let (send, lines) = mpsc::sync_channel(0);
    linux::worker::start(move || io::stdin().lines().try_for_each(|line| send.send(line)))?;
    let mut code = ExitCode::SUCCESS;
    loop {
        let line = match lines.recv_timeout(LOOK_UP) {
            Ok(line) => line.map_err(|error| UsageError::new(format!("worker: cannot read a line: {error}")))?,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(RunError::InterruptedEarly.into());
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(code),
        };
        if line.trim().is_empty() {
            continue;
        }
        match travel::work(&line, &stop) {
            Ok(line) => {
                // A line that nobody can take is not done.
                let mut stdout = io::stdout().lock();
                stdout.write_all((line + "\n").as_bytes()).and_then(|()| stdout.flush())?;
            }
            Err(RunError::Failed(problem)) => {
                writeln!(io::stderr(), "pagelab: failed: {problem}")?;
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the result of what came back.
pub(crate) fn collect(args: &args::Collect) -> anyhow::Result<ExitCode> {
    let lines = args.lines.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let collected = match travel::collect(&args.result, &lines) {
        Ok(collected) => collected,
        Err(refused) => {
            if let Some(orders) = &args.orders {
                let orders = String::from_utf8_lossy(&read(orders)?.bytes).into_owned();
                print(&in_lines(&travel::again(&orders, &refused.missing)?))?;
            }
            return Err(refused.error.into());
        }
    };
    let mut stderr = io::stderr();
    for place in &collected.torn {
        writeln!(stderr, "pagelab: {place}: cut off, and another line has its cell")?;
    }
    if collected.repeated > 0 {
        writeln!(stderr, "pagelab: {} lines said again what others had said", collected.repeated)?;
    }
    writeln!(stderr, "pagelab: all {} cells are in {}", collected.cells, args.result.display())?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Lines, UsageError> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        report::check_regular(path).and_then(|()| std::fs::read(path)).map(|found| bytes = found)
    };
    read.map_err(|error| UsageError::in_file(path.display(), error))?;
    Ok(Lines { from: path.display().to_string(), bytes })
}
