//! Linux: fs/ext4, fs/jbd2 (v6.1): what a file takes beside its pages, its inode and its name.

use memory::{cost::Work, slab::Cache};

use super::*;

#[test]
fn a_files_journal_record_and_extent_live_as_long_as_its_inode() {
    let mut lab = Lab::new(2048, 1, 50);
    let files: Vec<u32> = (0..70).map(|number| lab.create(&format!("a/{number}"))).collect();
    assert_eq!((used(&lab, Cache::Jbd2Inode), used(&lab, Cache::ExtentStatus)), (70, 0), "nothing is promised yet");
    assert_eq!(used(&lab, Cache::LsmInode), 70, "a security module may keep something with each");
    for file in &files[..30] {
        lab.write(*file, 0).unwrap();
        lab.write(*file, 1).unwrap();
    }
    assert_eq!((used(&lab, Cache::Jbd2Inode), used(&lab, Cache::ExtentStatus)), (70, 30));
    for file in files {
        lab.call(FileRequest::Close(file)).unwrap();
    }
    lab.call(FileRequest::SyncAll).unwrap();
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!((used(&lab, Cache::Jbd2Inode), used(&lab, Cache::ExtentStatus)), (0, 0));
    assert_eq!(used(&lab, Cache::LsmInode), 0);
    // A file that is opened may be written to.
    let Ok(FileAnswer::Opened(file)) = lab.call(FileRequest::Open("a/7".to_owned())) else { panic!() };
    assert_eq!((used(&lab, Cache::Jbd2Inode), used(&lab, Cache::ExtentStatus)), (1, 0));
    assert!(lab.read(file, 0).is_some());
}

/// Pages of the block device and of what says which blocks are free: index and frame.
fn blocks(lab: &Lab) -> Vec<(u64, Pfn)> {
    let pages = lab.mm.cache.pages().filter(|(id, ..)| lab.mm.cache.ext4.is_own(*id));
    pages.map(|(_, index, head)| (index, head)).collect()
}

fn create_and_close(lab: &mut Lab, names: std::ops::Range<u32>) {
    for number in names {
        let file = lab.create(&format!("a/{number}"));
        lab.call(FileRequest::Close(file)).unwrap();
    }
}

#[test]
fn inodes_share_blocks_that_the_journal_keeps_until_they_are_written() {
    let mut lab = Lab::new(2048, 1, 50);
    create_and_close(&mut lab, 0..160);
    // 161 inodes from the twelfth on, 16 in a block; their bitmap; the names.
    assert_eq!((blocks(&lab).len(), used(&lab, Cache::JournalHead)), (11 + 1 + 1, 13));
    assert!(blocks(&lab).iter().all(|(_, head)| lab.mm.is_journaled(*head)));
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!(blocks(&lab).len(), 13, "they are part of a transaction");
    let before = lab.counters.get(Event::Pgpgout);
    lab.now = lab.now + Picos::from_secs(6);
    rest(&mut lab, 100);
    // Into the journal with a descriptor and a record, which have pages too. Then they are dirty for half a minute.
    assert_eq!((lab.counters.get(Event::Pgpgout) - before, blocks(&lab).len()), (4 * 15, 15));
    assert_eq!((lab.mm.cache.totals().dirty, lab.mm.cache.ext4.due()), (13, None));
    lab.now = lab.now + Picos::from_secs(31);
    rest(&mut lab, 6000);
    assert_eq!((lab.mm.cache.totals().dirty, used(&lab, Cache::JournalHead)), (0, 13), "until the next commit");
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!(
        (blocks(&lab).len(), used(&lab, Cache::JournalHead)),
        (13, 0),
        "a shrinker is asked after pages are looked at"
    );
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!((blocks(&lab).len(), lab.mm.cache.objects().count()), (0, 0));
    let before = lab.counters.get(Event::Pgpgin);
    let Ok(FileAnswer::Opened(_)) = lab.call(FileRequest::Open("a/7".to_owned())) else { panic!() };
    // Its name, and with its inode's block the others of the table that hold inodes: the 172nd is the last.
    assert_eq!((lab.counters.get(Event::Pgpgin) - before, blocks(&lab).len()), (4 * (1 + 11), 1 + 11));
    let table: Vec<u64> = blocks(&lab).iter().map(|(index, _)| *index).filter(|index| *index < 40_960).collect();
    assert_eq!(table, (34..45).collect::<Vec<u64>>());
    // A thousand more take blocks of their own; of those no more is read at once than belongs together.
    create_and_close(&mut lab, 1000..2000);
    lab.call(FileRequest::SyncAll).unwrap();
    for _ in 0..3 {
        lab.call(FileRequest::DropCaches).unwrap();
    }
    let Ok(FileAnswer::Opened(_)) = lab.call(FileRequest::Open("a/1900".to_owned())) else { panic!() };
    let table: Vec<u64> =
        blocks(&lab).iter().map(|(index, _)| *index).filter(|index| (34..40_960).contains(index)).collect();
    assert_eq!(table, (96..=107).collect::<Vec<u64>>(), "up to the last that holds an inode");
}

#[test]
fn before_5_14_reclaim_gets_the_page_of_a_written_block() {
    let mut lab = Lab::new(2048, 1, 50);
    let rules = rules::variant::Variant { journal_shrinks: false, ..*lab.mm.memory.variant() };
    lab.mm.memory.set_variant(rules).unwrap();
    create_and_close(&mut lab, 0..160);
    lab.call(FileRequest::SyncAll).unwrap();
    assert_eq!((blocks(&lab).len(), used(&lab, Cache::JournalHead), lab.mm.count_checkpointed()), (15, 13, 0));
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!((blocks(&lab).len(), lab.mm.cache.objects().count()), (0, 0));
}

#[test]
fn journal_heads_of_a_transaction_go_once_its_blocks_are_stable() {
    let mut lab = Lab::new(2048, 1, 50);
    create_and_close(&mut lab, 0..160);
    lab.call(FileRequest::SyncAll).unwrap();
    assert_eq!(lab.mm.count_checkpointed(), 13);
    // The first block of the transaction, that of the names, changes again: at the commit it keeps the others.
    for (number, left) in [(160, 13), (161, 4)] {
        create_and_close(&mut lab, number..number + 1);
        let before = used(&lab, Cache::BufferHead);
        lab.call(FileRequest::SyncAll).unwrap();
        assert_eq!((used(&lab, Cache::JournalHead), lab.mm.count_checkpointed()), (left, left as u64));
        assert_eq!(
            used(&lab, Cache::BufferHead),
            before + 2,
            "those of the commit have gone, but for the journal's own blocks"
        );
    }
    // Unlinking alone is committed too.
    lab.call(FileRequest::Unlink("a/161".to_owned())).unwrap();
    assert_eq!(lab.mm.cache.ext4.due(), Some(lab.now + Picos::from_secs(5)));
}

#[test]
fn a_block_of_the_journal_does_not_move_and_others_do() {
    let mut lab = Lab::new(2560, 1, 500);
    // Blocks of metadata come between pages of files.
    for number in 0..1500 {
        let file = lab.create(&format!("a/{number}"));
        lab.write(file, 0).unwrap();
        lab.call(FileRequest::Close(file)).unwrap();
    }
    for number in (0..1500).step_by(2) {
        lab.call(FileRequest::Unlink(format!("a/{number}"))).unwrap();
    }
    let before = blocks(&lab);
    let kept: Vec<bool> = before.iter().map(|(_, head)| lab.mm.is_journaled(*head)).collect();
    assert!(kept.iter().filter(|kept| **kept).count() > 90);
    for _ in 0..8 {
        lab.run(Block(8));
    }
    let after: Vec<(u64, Pfn)> = blocks(&lab);
    let stayed = before.iter().zip(kept).filter(|(_, kept)| *kept).all(|(block, _)| after.contains(block));
    assert!(stayed, "the journal has references");
    let moved = [Event::PgmigrateSuccess, Event::PgmigrateFail].map(|event| lab.counters.get(event));
    assert!(moved[0] > 0 && moved[1] > 0, "{moved:?}");
}

#[test]
fn fsync_sends_the_transaction_and_what_is_free_is_known_without_buffers() {
    let mut lab = Lab::new(2048, 1, 50);
    let file = lab.create("a/0");
    lab.write(file, 0).unwrap();
    assert_eq!(blocks(&lab).len(), 3);
    lab.call(FileRequest::Sync(file)).unwrap();
    // The bitmap of blocks, two pages of buddies, and two of the journal.
    assert_eq!(blocks(&lab).len(), 3 + 1 + 2 + 2);
    rest(&mut lab, 10);
    assert_eq!((lab.mm.cache.ext4.due(), lab.mm.cache.totals().dirty), (None, 4));
    assert_eq!(used(&lab, Cache::BufferHead), 1 + 6);
    lab.call(FileRequest::SyncAll).unwrap();
    assert_eq!(lab.mm.cache.totals().dirty, 0);
}

#[test]
fn a_directory_grows_by_half_full_leaves() {
    let mut lab = Lab::new(4096, 1, 1000);
    let own = |lab: &Lab| blocks(lab).iter().filter(|(index, _)| (40_960..65_536).contains(index)).count();
    create_and_close(&mut lab, 0..300);
    assert_eq!(own(&lab), 1, "12 bytes for each name");
    create_and_close(&mut lab, 300..400);
    assert_eq!(own(&lab), 1 + 2, "a root and two leaves");
    create_and_close(&mut lab, 400..1600);
    // 1000 names of 12 bytes, and 600 of 12 too.
    assert_eq!(own(&lab), 1 + 7);
}

#[test]
fn each_file_that_is_written_back_has_a_turn_of_its_own() {
    let mut lab = Lab::new(2048, 1, 50);
    let turn = Picos::from_micros(1000);
    lab.prices = Prices::new(|work| if work == Work::FileWriteback { turn } else { Picos::from_nanos(200) });
    for number in 0..40 {
        let file = lab.create(&format!("a/{number}"));
        lab.write(file, 0).unwrap();
    }
    let before = lab.now;
    lab.call(FileRequest::SyncAll).unwrap();
    assert!(lab.now >= before + Picos(40 * turn.0), "{:?} after {before:?}", lab.now);
}
