//! Maps of physical memory over time, in a terminal, and results as one page.

use std::fs;

use report::{
    Cell,
    map::{BlockMap, FOLDER, Moves, TYPES, census},
};

use crate::support::{TINY, document, room::Room, words};

/// Memory is filled, so that there is something to see: 512 MiB, one thread.
const FULL: [&str; 10] =
    ["run", "thpscale", "--target", "sim", "--machine", "one-node-512m", "--variant", "v6.1", "--set", "threads=1"];
const MAPPED: [&str; 3] = ["--sample", "100ms", "--map"];

fn cells(room: &Room, result: &str) -> Vec<Cell> {
    report::cells(document::whole_records(&room.here().join(result)))
}

fn map_of(room: &Room, result: &str, cell: &Cell) -> BlockMap {
    let file = room.here().join(result).join(FOLDER).join(cell.map.as_ref().expect("it has a map"));
    BlockMap::from_bytes(&fs::read(file).expect("the file of a map")).expect("a map")
}

#[test]
fn a_map_counts_what_the_kernel_counts_and_changes_nothing() {
    let room = Room::new();
    room.run(&words(&[&FULL, &MAPPED[..2], &["-o", "plain"]])).expect(0);
    room.run(&words(&[&FULL, &MAPPED, &["-o", "mapped"]])).expect(0);
    let (plain, mapped) = (cells(&room, "plain"), cells(&room, "mapped"));
    assert_eq!((&plain[0].measured, &plain[0].series), (&mapped[0].measured, &mapped[0].series));
    assert!(plain[0].map.is_none() && !room.here().join("plain").join(FOLDER).exists());

    let map = map_of(&room, "mapped", &mapped[0]);
    let series = mapped[0].series.as_ref().expect("it was sampled");
    assert_eq!(map.len(), series.rows.len());
    assert_eq!(map.head.at_us, series.samples().iter().map(|sample| sample.at_us).collect::<Vec<_>>());
    assert_eq!(map.head.group, 1, "512 MiB have a cell for each pageblock");
    let mut most_huge = 0;
    for sample in 0..map.len() {
        let of_series = series.at(sample);
        let (mut huge, mut used) = (0, 0);
        for (zone, band) in census(&map, sample, None).iter().zip(&map.head.bands) {
            for (of, blocks) in TYPES.iter().zip(zone.of_type) {
                let path = format!("{}/blocks/{of}", band.zone);
                assert_eq!(Some(blocks), of_series(&path), "{path} in sample {sample}");
            }
            // Pageblocks with a hole may have no frame in use, and are not free from end to end.
            assert!(Some(zone.free) >= of_series(&format!("{}/blocks/free", band.zone)), "sample {sample}");
            huge += zone.huge;
            used += zone.blocks() - zone.free;
        }
        assert_eq!(Some(huge), of_series("node0/nr_anon_transparent_hugepages"), "sample {sample}");
        assert!(used > 0);
        most_huge = most_huge.max(huge);
    }
    assert!(most_huge > 10, "huge pages were there: {most_huge}");
    assert!(map.head.fragmentation.iter().flatten().any(|index| *index >= -1000));

    let text = room.run(&["map", "mapped", "--at", "0.5s"]).expect(0).stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for word in ["thpscale: 1 on sim:v6.1:one-node-512m, seed 1", "at 0.500 s of ", "node 0 DMA32, ", "Movable"] {
        assert!(text.contains(word), "expected {word:?} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "stdout is no terminal");
    let end = room.run(&["map", "mapped"]).expect(0).stdout;
    assert!(end.contains(&format!("sample {0} of {0}", map.len())), "{end}");

    room.run(&["map", "plain"]).expect(2).says(&["nothing in plain has a map", "--sample 100ms --map"]);
    room.run(&["map", "mapped", "--at", "12"]).expect(2).says(&["expected an instant such as 12.3s"]);
    room.run(&["map", "mapped", "--at", "100h"]).expect(2).says(&["--at 360000.000 s: 1 on ", "ends at "]);
    room.run(&["map", "mapped", "--kernel", "v6.2"])
        .expect(2)
        .says(&["unknown column \"v6.2\"", "sim:v6.1:one-node-512m"]);
    room.run(&["map", "mapped", "--case", "threads-2"]).expect(2).says(&["unknown case"]);
    room.run(&["map", "mapped", "--seed", "9"]).expect(2).says(&["has maps of 1 with seeds 1"]);
    room.run(&["map", "nowhere"]).expect(2).says(&["nowhere"]);
    let page = room.run(&["report", "mapped", "-o", "page.html"]).expect(0);
    page.says(&["the page is in page.html"]);
    let page = fs::read_to_string(room.here().join("page.html")).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // A file that is not what its name says is no map.
    let file = room.here().join("mapped").join(FOLDER).join(mapped[0].map.as_ref().unwrap());
    fs::write(&file, "pagelab map 1\n{}\n").unwrap();
    room.run(&["map", "mapped"]).expect(2).says(&["its content is not that of its name"]);
    room.run(&["report", "mapped", "-o", "other.html"]).expect(2).says(&["its content is not that of its name"]);
    assert!(!room.here().join("other.html").exists());
}

#[test]
fn maps_are_asked_for_where_they_can_be() {
    let room = Room::new();
    let run = |more: &[&str]| room.run(&words(&[&["run", "fault-storm"], &TINY, more]));
    run(&["--target", "sim", "--map"]).expect(2).says(&["--sample <TIME>"]);
    run(&["--target", "host", "--sample", "1s", "--map"]).expect(2).says(&["--map is for target sim"]);
    let guests = [
        "run",
        "two-guests",
        "--machine",
        "one-node-512m",
        "--variant",
        "v6.1",
        "--set",
        "memory=64MiB",
        "--sample",
        "1s",
        "--map",
    ];
    room.run(&guests).expect(2).says(&["--map: guests has several kernels"]);
    room.assert_untouched("refused maps");
    run(&["--variant", "v6.1", "--sample", "1ms", "--map", "-o", "result"]).expect(0);
    run(&["--variant", "v6.1", "--sample", "1ms", "-o", "result"]).expect(2).says(&["a different run", "--map"]);
    room.run(&["map", "/proc", "--seed", "1"]).expect(2).says(&["--seed is for results; /proc is of one moment"]);
}

#[test]
fn a_run_writes_its_page_when_it_is_over() {
    let room = Room::new();
    let run = |more: &[&str]| room.run(&words(&[&["run", "fault-storm", "--variant", "v6.1"], &TINY, more]));
    // A file that cannot be written is refused before the run.
    run(&["--report", "no/such/page.html"]).expect(2).says(&["write no/such/page.html: No such file"]);
    run(&["--report", "."]).expect(2).says(&["write"]);
    room.assert_untouched("refused pages");
    let told = run(&["--report", "page.html", "-o", "plain"]).expect(0);
    let told = told.says(&[
        "No map of memory is here; this records one: pagelab run fault-storm --target sim --variant v6.1 --set tasks=1 ",
        "--set size=2MiB --sample 100ms --map -o plain-mapped",
        "the page is in page.html",
    ]);
    assert!(told.stdout.contains("base-threads-1"), "the tables are there too: {}", told.stdout);
    let page = fs::read_to_string(room.here().join("page.html")).expect("a page");
    room.run(&["report", "plain", "-o", "page.html"]).expect(0);
    assert_eq!(page, fs::read_to_string(room.here().join("page.html")).expect("a page"), "`report` writes the same");
    // A page that is there is replaced, and has what was sampled; programs get lines of JSON alone.
    let json = ["--sample", "1ms", "--map", "--progress", "json", "--report", "page.html", "-o", "mapped"];
    let told = run(&json).expect(0);
    assert!(told.stderr.lines().all(|line| line.starts_with('{')) && told.stderr.contains("the page is in page.html"));
    assert!(!told.stderr.contains("this records one"), "{}", told.stderr);
    let mapped = fs::read_to_string(room.here().join("page.html")).expect("a page");
    assert!(mapped != page && !mapped.contains("No map of memory is here"));
}

#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let room = Room::new();
    room.run(&words(&[&["run", "fault-storm", "--variant", "v6.1", "--variant", "v5.0"], &TINY, &["-o", "plain"]]))
        .expect(0);
    room.run(&["report", "plain", "-o", "page.html"]).expect(0);
    let page = fs::read_to_string(room.here().join("page.html")).expect("a page");
    for word in
        ["No map of memory is here", "--sample 100ms --map", "Nothing was sampled over time", "v6.1 against v5.0"]
    {
        assert!(page.contains(word) || page.contains("v5.0 against v6.1"), "{word}");
    }
    room.run(&["report", "plain", "-o", "no/such/page.html"]).expect(2).says(&["no/such/page.html"]);
    room.run(&["report", "nowhere", "-o", "other.html"]).expect(2).says(&["nowhere is not a result directory"]);
    room.run(&["report", "plain", "--case", "none", "-o", "other.html"]).expect(2).says(&["--case: unknown case"]);
    room.run(&["report", "plain", "--kernel", "v1", "-o", "other.html"]).expect(2).says(&["--kernel: unknown column"]);
    let file = room.here().join("plain/result.jsonl");
    let lines = fs::read_to_string(&file).unwrap().replacen("\"schema\":5", "\"schema\":99", 1);
    fs::write(&file, lines).unwrap();
    room.run(&["report", "plain", "-o", "other.html"]).expect(2).says(&["expected schema 1 to 5, found 99"]);
    assert!(!room.here().join("other.html").exists());
    let left: Vec<_> = fs::read_dir(room.here()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// The data of a page.
fn data_of(room: &Room, page: &str) -> serde_json::Value {
    let page = fs::read_to_string(room.here().join(page)).expect("a page");
    let (_, rest) = page.split_once("id=\"data\">").expect("the page has data");
    serde_json::from_str(rest.split_once("</script>").expect("they end").0).expect("JSON")
}

#[test]
fn a_page_has_the_chains_that_why_prints() {
    let room = Room::new();
    room.run(&words(&[&FULL, &["--variant", "v5.0", "-o", "plain"]])).expect(0);
    let told = room.run(&["report", "plain", "--why", "3", "-o", "page.html"]).expect(0);
    told.says(&["the page is in page.html"]);
    let data = data_of(&room, "page.html");
    for kernel in data["kernels"].as_array().expect("kernels") {
        let chains = kernel["chains"].as_array().expect("chains");
        let ask = ["why", "plain", "--kernel", kernel["name"].as_str().unwrap(), "--slowest", "3"];
        let printed = room.run(&ask).expect(0).stdout;
        let texts: Vec<&str> = chains.iter().map(|chain| chain["text"].as_str().unwrap()).collect();
        assert_eq!((texts.len(), texts.join("\n")), (3, printed));
        let numbers: Vec<_> = chains.iter().map(|chain| chain["number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }
    assert!(data["more_chains"][1].as_str().unwrap().contains("report plain --why 12 -o page.html"), "{data}");
    assert!(data["command"].as_str().unwrap().contains("--why 3"));

    room.run(&["report", "plain", "-o", "page.html"]).expect(0);
    let data = data_of(&room, "page.html");
    assert_eq!(data["kernels"][0]["chains"], serde_json::json!([]));
    assert!(data["missing"].to_string().contains("report plain --why 5 -o page.html"), "{}", data["missing"]);
    room.run(&["report", "plain", "--why", "101", "-o", "page.html"]).expect(2).says(&["a number from 0 to 100"]);
}

#[test]
fn a_map_says_who_moved_pages() {
    let room = Room::new();
    // Faults of huge pages compact here.
    let run = ["run", "thpscale", "--target", "sim", "--machine", "two-node-2g", "--variant", "v4.1-rc2"];
    room.run(&words(&[&run, &["--set", "threads=4"], &MAPPED, &["-o", "mapped"]])).expect(0);
    let cells = cells(&room, "mapped");
    let map = map_of(&room, "mapped", &cells[0]);
    let moves = map.moves().expect("moves were recorded");
    let counter = |name: &str| cells[0].measured.counters.get(name).map_or(0, |counted| *counted);
    let all: Vec<_> = (0..map.len()).flat_map(|sample| moves.of(sample)).collect();
    let compaction = || all.iter().filter(|(.., reason)| reason.starts_with("compaction"));
    let (came, left) = compaction().fold((0, 0), |sum, (one, ..)| (sum.0 + one.came, sum.1 + one.left));
    assert!(came > 0, "{all:?}");
    if moves.least() == 1 {
        assert_eq!(came, left, "every page that left a block came into another");
    }
    assert!(i64::from(came) <= counter("pgmigrate_success"), "{came}");
    assert!(compaction().any(|(_, mover, _)| mover.starts_with("task ")), "direct compaction");
    assert!(all.iter().all(|(_, mover, _)| *mover != "?"), "{all:?}");
    // A file of a map may grow by less than a third of what it is without moves.
    let with = map.to_bytes().len();
    let without = map.clone().with_moves(Moves::new((0..map.len()).map(|_| Vec::new()))).to_bytes().len();
    assert!(with * 3 < without * 4, "{with} and {without}");
}

#[test]
fn a_page_compares_each_column_with_the_one_before() {
    let room = Room::new();
    let run = ["run", "fault-storm", "--variant", "v5.0", "--variant", "v5.1", "--variant", "v5.2", "-o", "ladder"];
    room.run(&words(&[&run, &TINY])).expect(0);
    room.run(&["report", "ladder", "-o", "page.html"]).expect(0);
    let data = data_of(&room, "page.html");
    let pairs = |of: &str| -> Vec<String> {
        let pairs = data[of].as_array().expect("pairs").iter();
        pairs.map(|pair| format!("{} {}", pair["old"].as_str().unwrap(), pair["new"].as_str().unwrap())).collect()
    };
    assert_eq!(pairs("pairs"), ["v5.0 v5.1", "v5.0 v5.2"]);
    assert_eq!(pairs("steps"), ["v5.0 v5.1", "v5.1 v5.2"]);
    let rows = |of: &str| data[of][1]["all"].as_array().expect("rows").len();
    assert_eq!(rows("pairs"), rows("steps"));
    // Two columns have one step, which is their comparison.
    let run = ["run", "fault-storm", "--variant", "v5.0", "--variant", "v5.1", "-o", "two"];
    room.run(&words(&[&run, &TINY])).expect(0);
    room.run(&["report", "two", "-o", "page.html"]).expect(0);
    assert_eq!(data_of(&room, "page.html")["steps"], serde_json::json!([]));
}
