//! Files as users have them (recordings/inputs, made up: each folder stands for a kind): each gives what is right for its kind,
//! or the sentence that says why not.

use std::{fs, path::Path};

use crate::support::room::Room;

fn input(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/inputs").join(name).display().to_string()
}

fn imported(name: &str) -> String {
    Room::new().run(&["machine", "import", "--from", &input(name)]).expect(0).stdout
}

/// The message without the path.
fn refused(name: &str) -> String {
    let answer = Room::new().run(&["machine", "import", "--from", &input(name)]).expect(2);
    answer.stderr.replace(&input(name), "HERE")
}

/// Runs fault-storm on 2 MiB of base pages in the simulator; the result is R.
fn storm(room: &Room, machine: &str, more: &[&str]) {
    let line = ["run", "fault-storm", "--target", "sim", "--machine", machine, "--set", "page=base"];
    let all = [&line[..], &["--set", "size=2MiB", "--quiet", "-o", "R"], more].concat();
    room.run(&all).expect(0);
}

#[test]
fn inputs_with_something_around_them_are_the_plain_file() {
    let plain = imported("zoneinfo-nameless-stat");
    assert!(plain.contains("kernel = \"4.18.0-80.el8.x86_64\""), "{plain}");
    assert_eq!(plain.matches("[[node]]").count(), 1, "{plain}");
    assert_eq!(plain.matches("[[node.zone]]").count(), 2, "{plain}");
    for name in ["paste-code", "paste-prompt", "paste-quoted", "paste-nonl", "sosreport-no-version"] {
        assert_eq!(imported(name), plain, "{name}");
    }
}

#[test]
fn inputs_of_what_is_not_modelled_are_refused_in_a_sentence() {
    let pages = refused("arm64-64k");
    assert!(pages.contains("pages of 64 KiB are not modelled") && pages.contains("aarch64"), "{pages}");
    assert!(pages.contains("16512000 kB") && pages.contains("258000"), "{pages}");
    let highmem = refused("highmem32");
    assert!(highmem.contains("zoneinfo, line 47: 32-bit kernels (zone HighMem) are not modelled"), "{highmem}");
    let old = refused("pre39-no-managed");
    assert!(old.contains("managed frames of each zone, found none: kernels before 3.9"), "{old}");
    assert!([&pages, &highmem, &old].iter().all(|message| message.lines().count() == 1));
}

#[test]
fn inputs_name_all_that_is_missing_at_once() {
    let room = Room::new();
    let nothing = room.run(&["machine", "import", "--from", &input("lkp")]).expect(2).stderr;
    assert!(nothing.contains("missing: zoneinfo") && nothing.contains("; the release"), "{nothing}");
    let zoneinfo = fs::read_to_string(input("zoneinfo-nameless-stat/zoneinfo")).expect("an input");
    let bare = room.give("bare.txt", &zoneinfo);
    let release = room.run(&["machine", "import", "--from", &bare]).expect(2).stderr;
    assert!(release.contains("missing: the release") && release.contains("--kernel"), "{release}");
    room.run(&["machine", "import", "--from", &bare, "--kernel", "4.18.0"]).expect(0);
    let cut = room.give("cut.txt", zoneinfo.replace("managed  3977", "managed  39x7"));
    let damaged = room.run(&["machine", "import", "--from", &cut, "--kernel", "4.18.0"]).expect(2).stderr;
    assert!(damaged.contains("cut.txt: zoneinfo, line 12: expected managed, a number, found \"39x7\""), "{damaged}");
}

#[test]
fn inputs_may_be_nodes_without_memory_which_allocate_from_the_nearest() {
    let text = imported("memoryless");
    assert_eq!(text.matches("[[node]]").count(), 4, "{text}");
    assert_eq!(text.matches("memory = \"0B\"").count(), 2, "{text}");
    let room = Room::new();
    let machine = room.give("four.toml", &text);
    storm(&room, &machine, &["--variant", "v5.4", "--set", "tasks=2"]);
}

#[test]
fn inputs_may_be_nodes_of_movable_memory_alone() {
    let room = Room::new();
    let machine = input("movable-only-node/cxl.toml");
    storm(&room, &machine, &["--variant", "v6.6", "--set", "tasks=1", "--set", "policy=bind:1"]);
    // Page tables and all else of the kernel's are on node 0, whose CPUs the task runs on; its 512 pages are not.
    let cells = fs::read_to_string(room.here().join("R/result.jsonl")).expect("a result");
    for counter in ["\"pgalloc_movable\":", "\"numa_other\":", "\"pgalloc_dma32\":", "\"nr_page_table_pages\":"] {
        assert!(cells.contains(counter) && !cells.contains(&format!("{counter}0,")), "{counter}");
    }
    let counted = |name: &str| -> u64 {
        let (_, rest) = cells.split_once(&format!("\"{name}\":")).expect("a counter");
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    };
    assert_eq!(counted("pgalloc_movable"), counted("numa_other"));
    assert_eq!(counted("pgalloc_dma32"), counted("numa_local"));
    assert!(counted("pgalloc_dma32") >= counted("nr_page_table_pages"));
}

/// The row of a claim that no result can have: published/mine has it too, misspelt.
#[test]
fn inputs_of_claims_name_the_row_that_does_not_exist_and_the_nearest() {
    let room = Room::new();
    let mine = room.here().join("published/mine");
    fs::create_dir_all(&mine).expect("a folder");
    for name in ["claims.toml", "rows.toml", "source.toml", "table.csv"] {
        fs::copy(input(&format!("claims-typo/published/mine/{name}")), mine.join(name)).expect("an input");
    }
    let line = ["run", "thpscale", "--target", "sim", "--machine", "one-node-512m", "--variant", "v5.8"];
    let more = ["--variant", "v5.9", "--set", "threads=1", "--set", "advise=yes", "--quiet", "-o", "R"];
    room.run(&line.iter().chain(&more).copied().collect::<Vec<_>>()).expect(0);
    let message = room.run(&["claims", "mine", "--result", "R"]).expect(2).stderr;
    assert!(message.contains("claims.toml: mine-1: one thread: no result can have case \"fault-hugh-1\""), "{message}");
    assert!(message.contains("fault-huge-advised-1") && message.lines().count() == 1, "{message}");
}

#[test]
fn inputs_may_be_an_oom_report_or_a_folder_with_one() {
    let text = imported("oom-report");
    assert_eq!(text, imported("oom-report/dmesg.txt"));
    assert_eq!(text.matches("[[node.zone]]").count(), 3, "{text}");
    for line in ["managed = 3840", "managed = 503808", "managed = 507904"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("# node 0 Normal: 34544 43180 51816; computed "), "{text}");
    assert!(text.contains("; free 0 0 0 0 0 0 0 0 1 1 3\n"), "{text}");
    let room = Room::new();
    let machine = room.give("killed.toml", &text);
    storm(&room, &machine, &["--variant", "v6.1", "--set", "tasks=1"]);
}

#[test]
fn inputs_of_a_report_that_lists_some_zones_say_that_others_are_missing() {
    let room = Room::new();
    let report = "CPU: 0 PID: 9 Comm: app Not tainted 6.6.1 #1\n\
                  DMA free:5000kB boost:0kB min:1024kB low:1280kB high:1536kB present:786432kB managed:663836kB\n\
                  lowmem_reserve[]: 0 0 3188 3188\nDMA: 2*4kB (U) 1*8kB (U) = 16kB\n";
    let import = |pages: u32| {
        let file = room.give("oom.txt", format!("{report}{pages} pages RAM\n"));
        room.run(&["machine", "import", "--from", &file]).expect(0).stderr
    };
    let said = import(1_012_736);
    assert!(
        said.contains("zones of 786432 kB are listed, but the machine has 4050944 kB (1012736 pages RAM)"),
        "{said}"
    );
    assert!(!import(196_608).contains("pages RAM"), "all zones");
}

#[test]
fn inputs_may_be_an_oom_report_of_a_cgroup_which_is_refused_in_a_sentence() {
    let room = Room::new();
    let log = "[ 1.0] CPU: 2 PID: 4 Comm: app Not tainted 6.1.0 #1\n[ 1.1] Memory cgroup out of memory: Killed process 4 (app)\n";
    let log = room.give("oom.txt", log);
    for line in [vec!["machine", "import", "--from", &log], vec!["map", &log]] {
        let message = room.run(&line).expect(2).stderr;
        assert!(message.contains("line 2: the OOM report is of the limit of a memory cgroup"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(room.run(&["show", &log]).expect(2).stderr.contains("its form is not known"), "no JSON");
}

#[test]
fn inputs_of_vmstat_say_which_is_older_and_have_no_negative_counts() {
    let room = Room::new();
    let message = room.run(&["show", &input("vmstat-reboot")]).expect(2).stderr;
    assert!(
        message.contains("it is older than") && message.contains("pgfault (91000 before, 1000 after)"),
        "{message}"
    );
    // The files the other way round are a pair: gauges are left out, whatever they are called.
    let before = "pgfault 10\nworkingset_nodes 500\nnr_tlb_remote_flush 5\nnr_free_pages 9\n";
    let after = "pgfault 9010\nworkingset_nodes 3\nnr_tlb_remote_flush 1005\nnr_free_pages 1\n";
    let first = room.give("pair/before", before);
    let second = room.give("pair/after", after);
    let moved = room.run(&["compare", &first, &second]).expect(0).stdout;
    assert!(moved.contains("pgfault") && moved.contains(" 9000\n") && !moved.contains("workingset_nodes"), "{moved}");
    room.run(&["compare", &second, &first]).expect(2);
    let kernel = "nr_free_pages 9\npgfault 10\nnr_tlb_remote_flush 5\n";
    let paste = room
        .give("paste.txt", format!("Before the test:\n[root@host ~]# cat /proc/vmstat\n{kernel}[root@host ~]# date\n"));
    let pasted = room.run(&["compare", &paste, &second]).expect(0).stdout;
    assert!(pasted.contains(" 9000\n") && pasted.contains(" 1000\n"), "{pasted}");
    let csv = room.run(&["compare", &first, &second, "--format", "csv"]).expect(0).stdout;
    assert!(csv.starts_with("counter,before,after,moved\n") && csv.contains("pgfault,10,9010,9000\n"), "{csv}");
    for option in [["--format", "json"], ["--fail-on", "pgfault>1"], ["--gate", "50"]] {
        let message = room.run(&[&["compare", &first, &second], &option[..]].concat()).expect(2).stderr;
        assert!(message.contains(option[0]) && message.lines().count() == 1, "{message}");
    }
    let shown = room.run(&["show", first.trim_end_matches("/before")]).expect(0).stdout;
    assert!(shown.contains("nr_tlb_remote_flush") && shown.contains("pgfault"), "{shown}");
    assert!(!shown.contains("workingset_nodes") && !shown.contains("nr_free_pages"), "{shown}");
    assert!(!shown.lines().any(|line| line.split_whitespace().any(|word| word.starts_with("-1"))), "{shown}");
}

#[test]
fn inputs_of_the_kernel_robot_are_columns_and_rows() {
    let room = Room::new();
    let matrix = room.run(&["show", &input("lkp/matrix.json")]).expect(0).stdout;
    assert!(matrix.contains("will-it-scale.per_process_ops") && matrix.contains("proc-vmstat.pgfault"), "{matrix}");
    let json = room.run(&["show", &input("lkp/will-it-scale.json")]).expect(0).stdout;
    assert!(json.contains("will-it-scale.time.system_time"), "{json}");
    let mail = room.run(&["show", &input("lkp/mail.txt")]).expect(0).stdout;
    assert!(mail.contains("aaaaaaaaaaaa") && mail.contains("bbbbbbbbbbbb"), "{mail}");
    assert!(mail.contains("mpstat.cpu.all.sys%"), "{mail}");
    room.run(&["compare", &input("lkp/matrix.json"), &input("lkp/matrix.json")]).expect(0);
}

#[test]
fn inputs_of_other_tools_are_tables_or_a_sentence() {
    let room = Room::new();
    let table = "\
> thpscale Fault Latencies
>                                    5.8.0              5.9.0
>                                  vanilla            patched
> Amean     fault-base-1      0.00 (   0.00%)      0.00 (   0.00%)
> Amean     fault-huge-1   1500.50 (   0.00%)   1360.50 *   9.33%*
";
    let shown = room.run(&["show", &room.give("mail.txt", table)]).expect(0).stdout;
    assert!(shown.contains("5.8.0-vanilla") && shown.contains("5.9.0-patched"), "{shown}");
    assert!(shown.contains("fault-huge-1"), "{shown}");
    let csv = "tasks,processes,processes_idle,threads,threads_idle,linear\n0,0,100,0,100,0\n1,500,75,4,75,5\n2,900,50,6,5,1\n";
    let shown = room.run(&["show", &room.give("page_fault1.csv", csv)]).expect(0).stdout;
    assert!(shown.contains("tasks=2") || shown.contains("900"), "{shown}");
    let kdevops = room.give("kdevops.txt", "linus-xfs-4k vs dev-xfs-4k\nfio randread IOPS up 3\n");
    let refused = room.run(&["show", &kdevops]).expect(2).stderr;
    assert!(refused.contains("its form is not known") && refused.lines().count() == 1, "{refused}");
}

#[test]
fn inputs_of_mmtests_may_be_a_configuration() {
    let room = Room::new();
    let config = input("mmtests-things/config-workload-thpcompact-mine");
    // The configuration has threads 1, 3, 5, 7 and 8; the threads of the command line count.
    let line = ["run", &config, "--target", "sim", "--machine", "one-node-512m", "--variant", "v6.1"];
    let more = ["--set", "threads=1,8", "--set", "size=20%", "--quiet", "-o", "R"];
    let shown = room.run(&line.iter().chain(&more).copied().collect::<Vec<_>>()).expect(0).stdout;
    assert!(shown.contains("thpcompact Init Latency") && shown.contains("anoninit-8"), "{shown}");
    let other = room.give("config-mine", "export MMTESTS=\"dbench4\"\n");
    let refused = room.run(&["run", &other]).expect(2).stderr;
    assert!(refused.contains("config-mine:1: MMTESTS: no workload is like \"dbench4\""), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}

#[test]
fn inputs_of_counts_alone_are_a_map_whose_positions_are_guessed() {
    let room = Room::new();
    let report = room.run(&["map", &input("oom-report/dmesg.txt")]).expect(0).stdout;
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat(&report).contains("by counts; positions are guessed"), "{report}");
    assert!(flat(&report).contains("all pageblocks are shown as Movable"), "{report}");
    assert!(report.contains("node 0 DMA32     984") && report.contains("node 0 DMA         8"), "{report}");
    assert!(report.contains("\nnode0/DMA: 0 0 0 0 0 0 0 0 1 1 3\n"), "{report}");
    let folder = room.run(&["map", &input("oom-report")]).expect(0).stdout;
    let of_zones = |text: &str| text.split_once("a character is").map(|(_, zones)| zones.to_owned());
    assert_eq!(of_zones(&folder), of_zones(&report));
    let buddyinfo = room.give(
        "buddyinfo",
        "> Node 0, zone      DMA      1      0      3      0      0      0      0      0      0      1      3\n",
    );
    let free = room.run(&["map", &buddyinfo]).expect(0).stdout;
    assert!(free.contains("16 MiB") && flat(&free).contains("without free memory are left out"), "{free}");
    let types = "\
$ cat /proc/pagetypeinfo
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10
Node    0, zone   Normal, type    Unmovable      4      0      0      0      0      0      0      0      0      0      0
Node    0, zone   Normal, type      Movable      1      0      0      0      0      0      0      0      0      1      2

Number of blocks type     Unmovable      Movable
Node 0, zone   Normal            3            9
";
    let types = room.give("types.txt", types);
    let both = room.run(&["map", &types, &buddyinfo]).expect(0).stdout;
    assert!(both.contains("UUUMMMM....."), "{both}");
    let nothing = room.give("nothing", "hello\n");
    let message = room.run(&["map", &nothing, &nothing]).expect(2).stderr;
    assert!(message.contains("expected buddyinfo, pagetypeinfo or an OOM report"), "{message}");
    let message = room.run(&["map", &nothing]).expect(2).stderr;
    assert!(message.contains("expected a state, buddyinfo, pagetypeinfo or an OOM report"), "{message}");
    let cut = room.give("cut", "Page block order: 9\nPages per block:  512\n");
    assert!(room.run(&["map", &cut]).expect(2).stderr.contains("pagetypeinfo, line "), "a place");
    let vast = room.give("vast", "Node 0, zone DMA 99999999999999999\n");
    assert_eq!(room.run(&["map", &vast]).expect(2).stderr.lines().count(), 1);
}

#[test]
fn inputs_made_by_hand_have_settings_beside_zoneinfo() {
    let room = Room::new();
    let folder = room.here().join("captures");
    let found = input("sosreport-no-version/proc/zoneinfo");
    fs::create_dir_all(&folder).expect("a folder");
    fs::copy(found, folder.join("zoneinfo")).expect("copied");
    fs::write(folder.join("version"), "Linux version 4.18.0-80.el8.x86_64\n").expect("written");
    fs::write(folder.join("sysctl"), "vm.watermark_scale_factor = 200\nvm.min_free_kbytes = 99999\n").expect("written");
    let text = room.run(&["machine", "import", "--from", "captures"]).expect(0).stdout;
    assert!(text.contains("\"vm.watermark_scale_factor\" = 200"), "{text}");
    assert!(text.contains("\"vm.min_free_kbytes\" = 99999"), "{text}");
}
