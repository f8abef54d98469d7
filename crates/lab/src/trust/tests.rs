//! What is counted, and that it fits a screen.

use memory::cost::Work;

use super::*;
use crate::{
    prices::Price,
    source::{self, Kind, Listed},
};

#[test]
fn every_experiment_fits_on_a_screen() {
    for Listed { name, .. } in source::list(Kind::Experiment) {
        let text = of(&name).expect(&name).text();
        assert!(text.lines().count() <= text::SCREEN, "{name}:\n{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80 && line == line.trim_end(), "{name}: {line:?}");
        }
        assert!(text.starts_with(&format!("{name}: ")) && text.contains("rules not checked "), "{text}");
    }
}

fn rows(name: &str) -> Vec<Row> {
    let trust = of(name).expect(name);
    let published = trust.published.iter().flat_map(published_rows);
    trust.prices().into_iter().chain([trust.rules()]).chain(published).collect()
}

#[test]
fn each_price_is_of_one_kind() {
    let rows = rows("thpscale-4.1");
    let [fitted, measured, assumed] = [&rows[0], &rows[1], &rows[2]];
    assert_eq!(fitted.count + measured.count + assumed.count, Work::ALL.len());
    let machine = Machine::load("four-core-4g", &linux::setting::names()).expect("built in");
    let is_fitted = |price: &&Price| price.source.starts_with("fitted: ");
    assert_eq!(fitted.count, machine.prices.iter().filter(is_fitted).count());
    assert!(fitted.count > 0 && measured.count > 0 && assumed.count > 0);
    // A pace that is fitted moves all others, which is worse than any single price.
    let others = Work::ALL.len() - machine.prices.len();
    let scaled = format!("all {others} other costs are scaled by 1.87, fitted to published rows: Min ");
    assert!(fitted.worst.starts_with(&scaled), "{}", fitted.worst);
    // Nothing is fitted on a machine that says nothing.
    let generic = super::tests::rows("thpscale");
    assert_eq!((generic[0].count, generic[0].worst.as_str()), (0, ""));
}

#[test]
fn rows_of_the_published_table_count_where_a_reason_picks_them() {
    let rows = rows("thpscale-4.1");
    let [fitted, wrong] = [&rows[4], &rows[5]];
    let published = published::load("s0").expect("built in");
    assert_eq!((fitted.of, wrong.of), (published.all().len(), published.all().len()));
    assert!(0 < fitted.count && fitted.count < wrong.count && wrong.count < wrong.of);
    let (values, reason) = wrong.worst.split_once(" values: ").expect("how many, and why");
    let of_reason = published
        .all()
        .iter()
        .filter(|value| published.wrong(&value.experiment, &value.metric, &value.case, &value.kernel) == Some(reason));
    assert_eq!(values.parse(), Ok(of_reason.count()));
    assert_eq!(super::tests::rows("thpscale").len(), 4, "nobody has published it");
}

#[test]
fn rules_from_memory_come_from_the_nearest_file_that_lists_them() {
    let of = |name: &str| variant::from_memory(name).expect(name);
    let all = of("v3.9");
    assert!(all.contains(&"thp_nodes") && !all.contains(&"mark_step"), "{all:?}");
    // 3.16 says nothing of it, and gives `fair_zones` by a commit.
    let later = of("v3.16");
    assert!(all.contains(&"fair_zones") && !later.contains(&"fair_zones"));
    assert!(later.len() < all.len() && later.iter().all(|rule| all.contains(rule)));
    // 4.1 was read.
    assert!(of("v4.1").len() < 10 && of("v4.1") == of("v4.1-rc2+1,2,3,4"));
    assert!(of("v4.1").contains(&"compact_mark") && !of("v6.1").contains(&"compact_mark"));
}

#[test]
fn counters_beside_a_kernel_are_those_of_the_document() {
    #[derive(serde::Deserialize)]
    struct Document {
        total: Total,
    }
    #[derive(serde::Deserialize)]
    struct Total {
        within: usize,
        compared: usize,
    }
    let text = include_str!("../../../../docs/fidelity.json");
    let Document { total } = serde_json::from_str(text).expect("JSON");
    let rows =
        source::names(Kind::Experiment).iter().filter_map(|name| Some(beside::of(name)?.row())).collect::<Vec<_>>();
    assert_eq!(rows.iter().map(|row| row.of).sum::<usize>(), total.compared);
    assert_eq!(rows.iter().map(|row| row.of - row.count).sum::<usize>(), total.within);
    let thpscale = beside::of("thpscale").expect("it was compared").row();
    assert!(thpscale.worst.contains(" thpscale ") && thpscale.worst.contains(", ours "), "{}", thpscale.worst);
    assert!(beside::of("thpscale-4.1").is_none());
}

#[test]
fn a_draw_is_quoted_with_its_ceiling_and_never_made_up() {
    let tally =
        |within: usize, compared: usize| serde_json::json!({"within": within, "compared": compared, "vacuous": 0});
    let recorded_by = |program: &str, ceiling: serde_json::Value| {
        let cells = serde_json::json!({"program": program, "total": tally(65, 100), "cells": [{}, {}, {}]});
        let thpscale = serde_json::json!({"ours": tally(30, 50), "ceiling": tally(120, 150)});
        serde_json::json!({
            "seed": "1a2b3c4d", "comparison": cells, "ceiling": ceiling, "experiments": {"thpscale": thpscale}
        })
        .to_string()
    };
    let recorded = |ceiling| recorded_by(crate::provenance::PROGRAM_HASH, ceiling);
    let older = beside::drawn_of(&recorded_by("0123456789abcdef", tally(258, 300)), "thpscale").expect("drawn").row();
    assert!(older.worst.ends_with(" 3 cells; by simulator 01234567, not this one"), "{}", older.worst);
    let whole = recorded(tally(258, 300));
    let row = beside::drawn_of(&whole, "thpscale").expect("it was drawn").row();
    assert_eq!((row.count, row.of), (20, 50));
    assert_eq!(row.worst, "60 % within; a kernel beside its own boots 80 % (30 off); draw 1a2b3c4d, 3 cells");
    let other = beside::drawn_of(&whole, "slab-churn").expect("it could have been").row();
    assert_eq!((other.count, other.of), (35, 100));
    assert!(other.worst.contains(" 86 % (42 off); of other workloads: draw 1a2b3c4d"), "{}", other.worst);
    assert!(beside::drawn_of(&whole, "thpscale-4.1").is_none(), "no draw has it");
    assert!(beside::drawn_of("null", "thpscale").is_none(), "no draw was recorded");
    let once = beside::drawn_of(&recorded(serde_json::Value::Null), "slab-churn").expect("of all").row();
    assert!(once.worst.starts_with("without a ceiling: "), "{}", once.worst);
}
