//! The published series of the repository, as they are.

use std::{fs, path::Path};

use report::{
    Published, Verdict,
    published::{claims_text, judge, judge_published},
};

fn series() -> Vec<Published> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published");
    let mut folders: Vec<_> = fs::read_dir(root)
        .expect("a folder")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let read = |folder: &std::path::PathBuf| {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
        let file = |path: std::path::PathBuf| {
            let text = fs::read_to_string(&path).expect("a text");
            (path.display().to_string(), text)
        };
        let files: Vec<_> = entries.map(file).collect();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
        Published::parse(name, &files).expect(name)
    };
    folders.iter().map(read).collect()
}

#[test]
fn every_claim_holds_for_the_table_that_it_is_about() {
    let mut judged = Vec::new();
    for published in series() {
        let judgement = judge_published(&published);
        for claim in &judgement.claims {
            assert_ne!(claim.verdict, Verdict::Fails, "{claim:#?}");
            for part in &claim.parts {
                // What is in no table says so in words.
                let is_open = matches!(part.verdict, Verdict::NotYet(_));
                assert_eq!(is_open, part.published_words.is_some(), "{}: {part:#?}", claim.id);
            }
        }
        judged.push((judgement.claims.len(), judgement.tally(false).1 + judgement.tally(true).1));
        assert_eq!(judgement.is_reached(), Some(true), "{}", published.name);
    }
    // Of each series, how many claims there are and how many its tables have the figures of.
    assert_eq!(judged, [(9, 9), (11, 10), (11, 6), (15, 15), (10, 8)]);
}

#[test]
fn claims_fit_a_terminal() {
    for published in series() {
        for judgement in [judge_published(&published), judge(&published, Err("no experiment makes this table yet"))] {
            let text = claims_text(&published, &judgement);
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line:?} in\n{text}");
            }
        }
    }
}
