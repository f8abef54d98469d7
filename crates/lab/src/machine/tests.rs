//! Machine files: every mistake is one exact message, and what is written reads back.

use super::*;

const KNOWN: &[&str] = &["transparent_hugepage/enabled", "vm.min_free_kbytes", "vm.lowmem_reserve_ratio"];

/// A valid file; each case of the table below spoils one line of it.
const GOOD: &str = r#"about = "a test"
threads = ["0,2", "1"]
modules = ["nvme"]
[[node]]
id = 0
memory = "512MiB"
cpus = "0,2"
distance = [10, 21]
[[node.zone]]
name = "DMA32"
start_pfn = 4096
spanned = 126944
present = 126944
managed = 117747
[[node]]
id = 1
memory = "64MiB"
cpus = "1"
distance = [21, 10]
[settings]
"vm.min_free_kbytes" = 67584
"transparent_hugepage/enabled" = "always"
"#;

fn read(text: &str) -> Result<Machine, UsageError> {
    Machine::from_source(&Source::from_text("machines/x.toml", text), KNOWN)
}

#[test]
fn a_valid_file_is_read() {
    let machine = read(GOOD).unwrap();
    assert_eq!(machine.name, "x");
    assert_eq!(machine.about, "a test");
    assert_eq!(machine.cpus(), [CpuId(0), CpuId(1), CpuId(2)]);
    assert_eq!(machine.memory(), Bytes::mib(576));
    assert_eq!(machine.threads, [vec![CpuId(0), CpuId(2)], vec![CpuId(1)]]);
    assert_eq!(machine.modules, ["nvme"]);
    assert_eq!(machine.kernel, None);
    let settings = [("vm.min_free_kbytes", "67584"), ("transparent_hugepage/enabled", "always")];
    assert_eq!(machine.settings, settings.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(machine.nodes[1].distance, [21, 10]);
    let zone = ZoneFacts {
        name: "DMA32".to_owned(),
        start_pfn: 4096,
        spanned: Frames(126_944),
        present: Frames(126_944),
        managed: Frames(117_747),
    };
    assert_eq!(machine.nodes[0].zones, [zone]);
}

/// Mistakes: the text to replace in the good file, its replacement, and the message without its file name.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("about = \"a test\"\n", "", "1: about: missing; expected a string"),
    ("modules", "module", "3: unknown key \"module\"; did you mean \"modules\"?"),
    ("[\"nvme\"]", "\"nvme\"", "3: modules: expected a list, each item a string, found the string \"nvme\""),
    // Nodes and their memory.
    ("id = 1", "id = 2", "16: node.id: nodes are numbered from 0 in order: expected 1, found 2"),
    ("id = 0\n", "", "4: node.id: missing; expected a whole number"),
    (
        "memory = \"512MiB\"",
        "memory = 512",
        "6: node.memory: expected a size such as \"512MiB\", found the integer 512",
    ),
    ("memory = \"512MiB\"\n", "", "4: node.memory: missing; expected a size such as \"512MiB\""),
    (
        "memory =",
        "memroy =",
        "6: node: unknown key \"memroy\"; did you mean \"memory\"? (valid keys: id, memory, cpus, distance, bandwidth, zone)",
    ),
    (
        "\"64MiB\"",
        "\"4095KiB\"",
        "17: node.memory: expected at least 4MiB (the kernel ignores smaller nodes), found 4095KiB",
    ),
    ("\"64MiB\"", "\"65538KiB\"", "17: node.memory: expected a multiple of 4KiB, found 65538KiB"),
    // CPUs.
    ("cpus = \"1\"\n", "", "15: node.cpus: missing; expected a string"),
    (
        "cpus = \"1\"",
        "cpus = \"1-\"",
        "18: node.cpus: expected CPUs in ascending order such as \"0-1,4\", found \"1-\"",
    ),
    ("cpus = \"1\"", "cpus = \"2\"", "18: node.cpus: CPU 2 is already on node 0"),
    (
        "cpus = \"0,2\"",
        "cpus = \"0,0\"",
        "7: node.cpus: expected CPUs in ascending order such as \"0-1,4\", found \"0,0\"",
    ),
    (
        "cpus = \"1\"",
        "cpus = \"\"",
        "7: node.cpus: CPUs are numbered from 0 without gaps: there is a CPU 2, but no CPU 1",
    ),
    (
        "cpus = \"1\"",
        "cpus = \"3-4\"",
        "7: node.cpus: CPUs are numbered from 0 without gaps: there is a CPU 2, but no CPU 1",
    ),
    // Hardware threads.
    ("\"0,2\", \"1\"", "\"0,2\", \"1,3\"", "2: threads: CPU 3 is not on any node"),
    ("\"0,2\", \"1\"", "\"0,2\", \"2\"", "2: threads: CPU 2 is listed twice"),
    ("\"0,2\", \"1\"", "\"0,1\", \"2\"", "2: threads: CPUs 0 and 1 share a core, but not a node"),
    ("\"0,2\", \"1\"", "\"0,2\"", "2: threads: CPU 1 is on no core; list each CPU, or none"),
    (
        "\"0,2\", \"1\"",
        "\"0,2\", \"1\", \"\"",
        "2: threads: expected at least one CPU on each core, found an empty list",
    ),
    ("\"0,2\", \"1\"", "\"0;2\"", "2: threads: expected CPUs in ascending order such as \"0-1,4\", found \"0;2\""),
    // Caches: the same reader.
    ("\"1\"]\n", "\"1\"]\ncaches = [\"0\", \"1\"]\n", "3: caches: CPU 2 is on no cache; list each CPU, or none"),
    ("\"1\"]\n", "\"1\"]\ncaches = [\"0-2\"]\n", "3: caches: CPUs 0 and 1 share a cache, but not a node"),
    // Distances.
    ("distance = [10, 21]\n", "", "4: node.distance: missing; expected a list, each item a whole number"),
    ("[10, 21]", "[10]", "8: node.distance: expected one distance per node (2), found 1"),
    ("[10, 21]", "[11, 21]", "8: node.distance: expected 10 as the distance from node 0 to node 0, found 11"),
    ("[10, 21]", "[10, 10]", "8: node.distance: expected 11 to 254 as the distance from node 0 to node 1, found 10"),
    ("[10, 21]", "[10, 255]", "8: node.distance: expected 11 to 254 as the distance from node 0 to node 1, found 255"),
    ("[21, 10]", "[20, 10]", "19: node.distance: node 1 to node 0 is 20, but node 0 to node 1 is 21"),
    // Bandwidth.
    (
        "distance = [10, 21]",
        "bandwith = \"12GiB/s\"",
        "8: node: unknown key \"bandwith\"; did you mean \"bandwidth\"? \
         (valid keys: id, memory, cpus, distance, bandwidth, zone)",
    ),
    (
        "id = 0\n",
        "id = 0\nbandwidth = \"12GB/s\"\n",
        "6: node.bandwidth: expected a rate such as \"12GiB/s\" (units B, KiB, MiB, GiB, TiB), found \"12GB/s\"",
    ),
    (
        "id = 0\n",
        "id = 0\nbandwidth = 12\n",
        "6: node.bandwidth: expected a rate such as \"12GiB/s\", found the integer 12",
    ),
    ("id = 0\n", "id = 0\nbandwidth = \"1023KiB/s\"\n", "6: node.bandwidth: expected at least 1MiB/s, found 1023KiB/s"),
    // Shared cores.
    (
        "modules",
        "shared_core = 160\nmodules",
        "3: shared_core: expected such as { percent = 160, source = \"who measured it, or assumed: why\" }",
    ),
    (
        "modules",
        "shared_core = { percent = 99, source = \"x\" }\nmodules",
        "3: shared_core.percent: expected 100 to 400 (percent of the time alone), found 99",
    ),
    ("modules", "shared_core = { percent = 160 }\nmodules", "3: shared_core.source: missing; expected a string"),
    (
        "modules",
        "shared_core = { precent = 160 }\nmodules",
        "3: shared_core: unknown key \"precent\"; did you mean \"percent\"? (valid keys: percent, source)",
    ),
    // Zones.
    ("managed = 117747\n", "", "9: node.zone.managed: missing; expected a whole number"),
    (
        "managed = 117747",
        "managed = 126945",
        "14: node.zone.managed: expected at most present (126944 frames), found 126945",
    ),
    (
        "present = 126944",
        "present = 126945",
        "13: node.zone.present: expected at most spanned (126944 frames), found 126945",
    ),
    // Settings.
    ("67584", "[1]", "21: settings.\"vm.min_free_kbytes\": expected a string, number or boolean, found a list"),
    (
        "\"vm.min_free_kbytes\"",
        "vm.min_free_kbytes",
        "21: settings.vm: a setting's name with a dot in it needs quotes: \"vm.min_free_kbytes\"",
    ),
    (
        "vm.min_free_kbytes",
        "vm.min_free_kbyte",
        "21: settings: unknown setting \"vm.min_free_kbyte\"; did you mean \"vm.min_free_kbytes\"? \
             (valid settings: transparent_hugepage/enabled, vm.min_free_kbytes, vm.lowmem_reserve_ratio)",
    ),
    ("\"transparent_hugepage/enabled\"", "\"vm.min_free_kbytes\"", "22: the key \"vm.min_free_kbytes\" is given twice"),
];

#[test]
fn every_mistake_is_one_message() {
    for (from, to, expected) in MISTAKES {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = read(&text).expect_err(&text).to_string();
        assert_eq!(error, format!("machines/x.toml:{expected}"), "{from} -> {to}");
    }
}

#[test]
fn a_machine_has_nodes_and_cpus() {
    let message = |text| read(text).unwrap_err().to_string();
    assert_eq!(message("about = ''"), "machines/x.toml:1: node: a machine has at least one [[node]], found none");
    assert_eq!(
        message("about = ''\n[[node]]\nid = 0\nmemory = '1GiB'\ncpus = ''\n"),
        "machines/x.toml:5: node.cpus: expected at least one CPU in the machine, found none on any node"
    );
}

#[test]
fn a_machine_has_enough_memory_to_boot() {
    let text = "about = ''\n[[node]]\nid = 0\nmemory = '64MiB'\ncpus = '0'\n";
    assert_eq!(
        read(text).unwrap_err().to_string(),
        "machines/x.toml:4: node.memory: expected at least 96MiB in all nodes (Linux does not boot in less), found 64MiB"
    );
}

#[test]
fn distances_default_to_ten_and_twenty() {
    let machine = read(&GOOD.replace("distance = [10, 21]\n", "").replace("distance = [21, 10]\n", "")).unwrap();
    let distances: Vec<_> = machine.nodes.iter().map(|node| node.distance.as_slice()).collect();
    assert_eq!(distances, [[10, 20], [20, 10]]);
}

#[test]
fn a_disk_is_no_tape() {
    let disk = |text: &str| read(&format!("disk = {{ {text} }}\n{GOOD}"));
    let message = |text| disk(text).unwrap_err().to_string();
    assert!(disk("latency_us = 100, bandwidth = '200MiB/s'").unwrap().disk.is_some());
    assert!(
        message("latency_us = 2000000, bandwidth = '200MiB/s'").contains("expected at most 1000000, found 2000000")
    );
    assert!(message("latency_us = 100, bandwidth = '2KiB/s'").contains("bandwidth: expected at least 1MiB/s"));
    assert!(message("latency_us = 100").contains("bandwidth"));
    let xfs = "latency_us = 100, bandwidth = '200MiB/s', filesystem = 'xfs'";
    assert!(disk(xfs).unwrap().disk.unwrap().is_xfs);
    assert!(message(&xfs.replace("'xfs'", "'xfz'")).contains("did you mean \"xfs\"?"));
}

#[test]
fn storage_is_a_disk_or_memory() {
    let medium = |text: &str| read(&format!("{text}\n{GOOD}")).map(|machine| machine.storage);
    assert_eq!(medium(""), Ok(Storage::Disk));
    assert_eq!(medium("storage = 'memory'"), Ok(Storage::Memory));
    let both = "storage = 'memory'\ndisk = { latency_us = 100, bandwidth = '200MiB/s' }";
    assert!(medium(both).unwrap_err().to_string().contains("a machine whose storage is memory has no disk"));
    let error = medium("storage = 'tape'").unwrap_err().to_string();
    assert!(error.contains("storage: expected \"disk\" or \"memory\", found \"tape\""), "{error}");
}

#[test]
fn a_host_backs_a_guest_in_base_pages_or_huge_ones() {
    let page = |text: &str| read(&format!("{text}\n{GOOD}")).map(|machine| machine.host_page);
    assert_eq!(page(""), Ok(None));
    assert_eq!(page("host_page = '2MiB'"), Ok(Some(Bytes::HUGE_PAGE)));
    let error = page("host_page = '64KiB'").unwrap_err().to_string();
    assert!(error.contains("host_page: expected \"4KiB\" or \"2MiB\", found \"64KiB\""), "{error}");
}

#[test]
fn a_system_leaves_room() {
    let system = |text: &str| read(&format!("system = {{ {text} }}\n{GOOD}"));
    let message = |text| system(text).unwrap_err().to_string();
    let read = system("anonymous = '96MiB', kernel = '48MiB', percent = 20").unwrap();
    let wanted =
        System { anonymous: Frames(24_576), kernel: Frames(12_288), percent: 20, programs: Frames(0), varies: 0 };
    assert_eq!(read.system, Some(wanted));
    assert!(message("anonymous = '96MiB', kernel = '300MiB', percent = 20").contains("at most half of the memory"));
    assert!(
        message("anonymous = '1MiB', kernel = '1MiB', percent = 51").contains("percent: expected 0 to 50, found 51")
    );
    let varies = "anonymous = '1MiB', kernel = '1MiB', percent = 5, varies = 91";
    assert!(message(varies).contains("varies: expected 0 to 90, found 91"));
    assert!(message("anonymous = '1MiB', percent = 5").contains("kernel: missing"));
    for wrong in ["1GiB", "252KiB"] {
        let text = format!("anonymous = '1MiB', kernel = '1MiB', percent = 5, programs = '{wrong}'");
        let error = system(&text).unwrap_err().to_string();
        let expected = format!("programs: expected 0 or 256KiB to half of the memory, found {wrong}");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn what_is_written_reads_back() {
    let mut machine = read(GOOD).unwrap();
    machine.nodes[1].bandwidth = BytesPerSecond::new(Bytes::gib(25));
    machine.shared_core = Some(SharedCore { percent: 150, source: "measured: \"x\"".to_owned() });
    machine.caches = vec![vec![CpuId(0)], vec![CpuId(1)], vec![CpuId(2)]];
    machine.swap = Bytes::mib(64);
    machine.pace = Some(Pace { percent: 210, source: "measured: \"y\"".to_owned() });
    machine.system =
        Some(System { anonymous: Frames(9), kernel: Frames(512), percent: 7, programs: Frames(64), varies: 3 });
    machine.disk = Some(Disk {
        latency_us: 7000,
        bandwidth: BytesPerSecond::new(Bytes::mib(120)).unwrap(),
        is_xfs: false,
        size: None,
    });
    machine.about = "a \"quoted\" text with \\, \t and\nlines, µs".to_owned();
    machine.kernel = Some("6.1.0-50-cloud-amd64".to_owned());
    for value in ["256\t256\t32\t0\t0", "256 256", "007", "-1", "1"] {
        machine.settings[0] = ("vm.lowmem_reserve_ratio".to_owned(), value.to_owned());
        assert_eq!(read(&machine.to_toml()).as_ref(), Ok(&machine), "{}", machine.to_toml());
    }
    (machine.storage, machine.disk) = (Storage::Memory, None);
    assert_eq!(read(&machine.to_toml()).as_ref(), Ok(&machine));
    assert!(machine.to_toml().starts_with("# A machine for pagelab"));
}

#[test]
fn a_found_machine_is_as_fast_as_the_requested() {
    let mut fast = read(GOOD).unwrap();
    fast.nodes[1].bandwidth = BytesPerSecond::new(Bytes::gib(25));
    fast.shared_core = Some(SharedCore { percent: 150, source: "assumed".to_owned() });
    fast.disk = Some(Disk {
        latency_us: 80,
        bandwidth: BytesPerSecond::new(Bytes::mib(400)).unwrap(),
        is_xfs: false,
        size: None,
    });
    let found = read(GOOD).unwrap();
    // A kernel does not say what swap a guest of its shape gets.
    let found = Machine { swap: Bytes(0), ..found };
    (fast.swap, fast.storage) = (Bytes::mib(64), Storage::Memory);
    assert_eq!(found.as_fast_as(&fast), fast);
    let mut larger = read(GOOD).unwrap();
    larger.nodes.push(Node { id: NodeId(2), ..larger.nodes[0].clone() });
    assert_eq!(larger.as_fast_as(&fast).nodes[2].bandwidth, None, "the other has no such node");
}

#[test]
fn the_replayable_mode_keeps_one_cpu() {
    let machine = read(GOOD).unwrap();
    let one = machine.with_one_cpu();
    assert_eq!(one.cpus(), [CpuId(0)]);
    assert_eq!(one.nodes[1].cpus, []);
    assert_eq!(one.memory(), machine.memory());
    assert_eq!(read(&one.to_toml()), Ok(one));
}

#[test]
fn the_built_in_machines_are_what_their_names_say() {
    let shape = |name: &str| {
        let source = Source::from_text(
            format!("{name}.toml"),
            std::fs::read_to_string(format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"))).unwrap(),
        );
        let machine = Machine::from_source(&source, KNOWN).unwrap();
        assert_eq!(machine.settings, [("transparent_hugepage/enabled".to_owned(), "always".to_owned())], "{name}");
        assert!(machine.nodes.iter().all(|node| node.distance.iter().all(|distance| [10, 20].contains(distance))));
        let cpus: Vec<_> = machine.nodes.iter().map(|node| node.cpus.len()).collect();
        (cpus, machine.memory())
    };
    assert_eq!(shape("one-node-512m"), (vec![2], Bytes::mib(512)));
    assert_eq!(shape("one-cpu-512m"), (vec![1], Bytes::mib(512)));
    assert_eq!(shape("four-core-512m"), (vec![4], Bytes::mib(512)));
    assert_eq!(shape("one-node-4g"), (vec![2], Bytes::gib(4)));
    assert_eq!(shape("two-node-2g"), (vec![1, 1], Bytes::gib(2)));
    assert_eq!(shape("four-node-2g"), (vec![1; 4], Bytes::gib(2)));
}
