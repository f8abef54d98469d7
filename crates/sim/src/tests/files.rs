//! Files on a machine whose every frame is asked after every step.

use os::FileRange;
use units::Errno;

use super::*;

fn small() -> Config {
    Config { cap: Bytes::mib(64), ..config(ThpEnabled::Never) }
}

fn run<T: 'static>(config: &Config, main: impl AsyncFnOnce(Sim) -> T + 'static) -> (T, Finish) {
    simulate(config, no_entries, main)
}

async fn write(os: &Sim, name: &str, pages: u64) -> os::File {
    let file = os.create(name).await.unwrap();
    for page in 0..pages {
        os.write(file, Bytes::PAGE * page, Bytes::PAGE).await.unwrap();
    }
    file
}

fn gauge(stat: &os::VmStat, name: &str) -> u64 {
    stat.0[name]
}

#[test]
fn what_is_written_is_cached_and_goes_with_the_file() {
    let (stats, _) = run(&small(), async |os: Sim| {
        let file = write(&os, "a", 300).await;
        let full = os.vmstat().await.unwrap();
        os.close(file).await.unwrap();
        os.unlink("a").await.unwrap();
        (full, os.vmstat().await.unwrap())
    });
    let (full, empty) = stats;
    // Inode, bitmap and directory have a page each, which the journal keeps; so has what is known of free blocks.
    let blocks = gauge(&full, "nr_file_pages") - 300;
    assert!(((3..=6).contains(&blocks), gauge(&full, "nr_dirtied")) == (true, 300), "{blocks} blocks");
    assert!(gauge(&full, "nr_inactive_file") > 250);
    assert_eq!((gauge(&empty, "nr_file_pages"), gauge(&empty, "nr_dirty")), (blocks, 0));
}

#[test]
fn a_file_that_is_larger_than_memory_is_reclaimed() {
    let (stat, finish) = run(&small(), async |os: Sim| {
        let file = write(&os, "a", 6000).await;
        os.fsync(file).await.unwrap();
        os.vmstat().await.unwrap()
    });
    // Blocks of metadata are dirty when they are committed.
    assert!((6000..6020).contains(&gauge(&stat, "nr_dirtied")), "{}", gauge(&stat, "nr_dirtied"));
    assert!((6000..6020).contains(&gauge(&stat, "nr_written")), "{}", gauge(&stat, "nr_written"));
    assert!(gauge(&stat, "nr_dirty") < 20 && gauge(&stat, "nr_writeback") < 20);
    assert!(gauge(&stat, "nr_file_pages") < 2048);
    let stolen = [Event::PgstealKswapd, Event::PgstealDirect].map(|event| finish.counters.get(event));
    assert!(stolen[0] > 1000 && stolen[0] + stolen[1] > 4000, "{stolen:?}");
}

/// With XFS, who writes pages of a file back logs its inode, which wakes the flusher itself. Where a reader has the disk, it then
/// waits in the same step.
#[test]
fn a_flusher_that_wakes_itself_stays_on_its_cpu() {
    let mut config = small();
    (config.disk.filesystem, config.disk.depth) = (mm::file::disk::Filesystem::Xfs, 1);
    config.disk.latency = Picos::from_micros(3000);
    let (stat, _) = run(&config, async |os: Sim| {
        let (a, b) = (os.create("a").await.unwrap(), write(&os, "b", 600).await);
        os.sync().await.unwrap();
        // Inodes are flushed meanwhile.
        os.sleep(Picos::from_secs(100)).await;
        os.drop_caches().await.unwrap();
        os.write(a, Bytes(0), Bytes::PAGE).await.unwrap();
        let reader = os.spawn(Placement::Spread(1), async move |os: Sim| os.read(b, Bytes(0), Bytes::mib(2)).await);
        os.sleep(Picos::from_micros(1000)).await;
        os.sync().await.unwrap();
        reader.await.unwrap().unwrap();
        os.vmstat().await.unwrap()
    });
    assert_eq!((gauge(&stat, "nr_written"), gauge(&stat, "nr_dirty")), (601, 0));
}

#[test]
fn names_are_known_once() {
    let (results, _) = run(&small(), async |os: Sim| {
        let file = os.create("a").await.unwrap();
        let again = os.create("a").await;
        os.close(file).await.unwrap();
        let closed = os.close(file).await;
        let other = os.open("b").await;
        os.open("a").await.unwrap();
        (again, closed, other, os.unlink("b").await)
    });
    let (again, closed, other, gone) = results;
    assert_eq!(again.unwrap_err(), Errno::EXIST);
    assert_eq!(closed, Err(Errno::BADF));
    assert_eq!((other.unwrap_err(), gone), (Errno::NOENT, Err(Errno::NOENT)));
}

#[test]
fn a_full_disk_takes_no_more() {
    let mut config = small();
    config.disk.size = Bytes::mib(1);
    let (results, _) = run(&config, async |os: Sim| {
        let file = write(&os, "a", 256).await;
        let full = os.write(file, Bytes::mib(1), Bytes::PAGE).await;
        let again = os.write(file, Bytes(0), Bytes::mib(1)).await;
        os.truncate(file, Bytes::kib(512)).await.unwrap();
        (full, again, os.write(file, Bytes::mib(1), Bytes::kib(512)).await)
    });
    assert_eq!(results, (Err(Errno::NOSPC), Ok(()), Ok(())));
}

#[test]
fn a_mapping_is_read_ahead_and_around() {
    let (used, finish) = run(&small(), async |os: Sim| {
        let file = write(&os, "a", 256).await;
        os.sync().await.unwrap();
        // A second time, for what the journal had a part in.
        os.drop_caches().await.unwrap();
        os.drop_caches().await.unwrap();
        let empty = os.vmstat().await.unwrap();
        assert_eq!(gauge(&empty, "nr_file_pages"), 0);
        let before = os.rusage().await.unwrap();
        let range = os.mmap(Bytes::mib(1), MapSpec::SharedRead(FileRange { file, offset: Bytes(0) })).await.unwrap();
        os.load(range, Bytes::PAGE).await.unwrap();
        let used = os.rusage().await.unwrap().since(&before);
        let mapped = os.vmstat().await.unwrap();
        assert_eq!((gauge(&mapped, "nr_mapped"), gauge(&mapped, "nr_file_pages")), (256, 256));
        os.munmap(range).await.unwrap();
        assert_eq!(gauge(&os.vmstat().await.unwrap(), "nr_mapped"), 0);
        used
    });
    assert_eq!(finish.counters.get(Event::Pgpgin), 1024);
    assert!((1..16).contains(&used.major_faults), "{used:?}");
    assert!(used.minor_faults >= 12 && used.minor_faults < 64, "{used:?}");
}

#[test]
fn stores_dirty_shared_mappings_and_copy_private_ones() {
    let (stats, _) = run(&small(), async |os: Sim| {
        let file = os.create("a").await.unwrap();
        os.unlink("a").await.unwrap();
        os.truncate(file, Bytes::mib(1)).await.unwrap();
        let of = FileRange { file, offset: Bytes(0) };
        let shared = os.mmap(Bytes::mib(1), MapSpec::Shared(of)).await.unwrap();
        os.store(shared, Bytes::PAGE).await.unwrap();
        let first = os.vmstat().await.unwrap();
        let private = os.mmap(Bytes::mib(1), MapSpec::Private(of)).await.unwrap();
        os.load(private, Bytes::PAGE).await.unwrap();
        os.store(private, Bytes::PAGE).await.unwrap();
        os.store(private, Bytes::PAGE).await.unwrap();
        let second = os.vmstat().await.unwrap();
        os.munmap(shared).await.unwrap();
        os.close(file).await.unwrap();
        os.munmap(private).await.unwrap();
        // What is being written goes when it is written.
        os.sleep(Picos::from_micros(1_000_000)).await;
        (first, second, os.vmstat().await.unwrap())
    });
    let (first, second, end) = stats;
    assert_eq!(["nr_mapped", "nr_dirtied"].map(|name| gauge(&first, name)), [256; 2]);
    assert!((256 + 3..=256 + 6).contains(&gauge(&first, "nr_file_pages")), "and blocks of metadata");
    assert_eq!(gauge(&second, "nr_mapped"), 256);
    assert_eq!(["nr_mapped", "nr_dirty"].map(|name| gauge(&end, name)), [0; 2]);
    assert!(gauge(&end, "nr_file_pages") <= 6, "blocks of metadata");
}

#[test]
fn many_small_files_give_their_inodes_back() {
    let ((), finish) = run(&small(), async |os: Sim| {
        for number in 0..3000 {
            let file = write(&os, &format!("dir/{number}"), 1).await;
            os.close(file).await.unwrap();
        }
    });
    assert!(finish.counters.get(Event::SlabsScanned) > 0);
    assert_eq!(finish.counters.get(Event::NrDirtied), 3000);
}

#[test]
fn what_a_disk_cannot_write_fsync_reports_once() {
    // The default disk does not fail; a run hash of twice the same shows that nothing else is left to chance.
    let once = || run(&small(), async |os: Sim| write(&os, "a", 2500).await).1.hash;
    assert_eq!(once(), once());
}

#[test]
fn a_page_behind_the_files_end_is_a_bus_error() {
    let (ends, _) = run(&small(), async |os: Sim| {
        let file = write(&os, "a", 3).await;
        let of = FileRange { file, offset: Bytes(0) };
        let range = os.mmap(Bytes::PAGE * 4, MapSpec::SharedRead(of)).await.unwrap();
        let behind = os.spawn(Placement::Spread(1), async move |os: Sim| os.load(range, Bytes::PAGE).await).await;
        os.munmap(range).await.unwrap();
        let nowhere = os.spawn(Placement::Spread(1), async move |os: Sim| os.load(range, Bytes::PAGE).await).await;
        [behind, nowhere].map(|end| end.map(|_| ()).unwrap_err().reason)
    });
    assert_eq!(ends, ["killed by signal 7 (SIGBUS)", "killed by signal 11 (SIGSEGV)"]);
}

/// Two tasks write a file each in blocks of a sector, beside a task that fills memory; then all three do so once more.
fn in_sectors(rules: &str, quantum: Picos, at_once: bool) -> (Finish, Extra) {
    let mut config = Config { variant: *variant::named(rules), quantum, ..small() };
    config.disk.bandwidth = BytesPerSecond::new(Bytes::mib(50)).unwrap();
    let sample = Some(Picos::from_micros(700));
    let ((), finish, extra) =
        simulate_with(&config, Options { sample, ..Options::default() }, no_entries, async move |os: Sim| {
            let write = async move |os: Sim, name: &'static str, len: u64| {
                let file = os.create(name).await.unwrap();
                let len = Bytes(len);
                for from in [Bytes(0), Bytes(700)] {
                    if at_once {
                        os.write_blocks(file, from, len, Bytes(512)).await.unwrap();
                    } else {
                        for start in (0..len.0).step_by(512) {
                            os.write(file, Bytes(from.0 + start), Bytes(512.min(len.0 - start))).await.unwrap();
                        }
                    }
                }
                os.fsync(file).await.unwrap();
            };
            let other = os.spawn(Placement::Free, async move |os: Sim| write(os, "b", 120_100).await);
            let third = os.spawn(Placement::Free, async move |os: Sim| {
                let range = os.mmap(Bytes::mib(3), MapSpec::Anonymous).await.unwrap();
                os.store(range, Bytes::PAGE).await.unwrap();
            });
            write(os, "a", 1_000_000).await;
            other.await.unwrap();
            third.await.unwrap();
        });
    (finish, extra)
}

#[test]
fn blocks_are_written_as_by_one_call_after_the_other() {
    for (rules, quantum) in [("v6.7", QUANTUM), ("v4.1-rc2", QUANTUM), ("v6.7", Picos(0))] {
        let [(one, one_extra), (many, many_extra)] = [true, false].map(|at_once| in_sectors(rules, quantum, at_once));
        assert_eq!(one, many, "{rules}");
        assert_eq!(one_extra, many_extra, "{rules}");
        assert!(one_extra.operations > 4300, "each of them is an operation: {}", one_extra.operations);
    }
}

#[test]
fn an_empty_block_writes_nothing() {
    let (written, _) = run(&small(), async |os: Sim| {
        let file = os.create("a").await.unwrap();
        (
            os.write_blocks(file, Bytes(0), Bytes(10), Bytes(0)).await,
            os.write_blocks(file, Bytes(0), Bytes(0), Bytes(9)).await,
        )
    });
    assert_eq!(written, (Err(Errno::INVAL), Ok(())));
}
