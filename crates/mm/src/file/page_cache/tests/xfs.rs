//! Linux: fs/xfs/xfs_buf.c, xfs_log_cil.c (v4.20): buffers of inodes, and what the log needs of memory.

use memory::slab::Cache;

use super::*;

#[test]
fn xfs_reads_the_buffers_of_inodes_that_it_gave_back() {
    let mut lab = Lab::new(2048, 3, 50);
    for number in 0..100 {
        let file = lab.create(&format!("a/{number}"));
        lab.call(FileRequest::Close(file)).unwrap();
    }
    let buffers = |lab: &Lab| lab.mm.cache.xfs.pages().count() / 4;
    assert_eq!(buffers(&lab), 4, "32 inodes each");
    // Half a minute later all are flushed.
    lab.now = lab.now + Picos::from_secs(31);
    for _ in 0..100 {
        lab.run_daemons();
        lab.now = lab.now + Picos::from_micros(1000);
    }
    assert_eq!(
        (lab.mm.cache.xfs.due(), lab.counters.get(Event::Pgpgout)),
        (None, 4 * 16 + 28),
        "and seven pages of log"
    );
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!((buffers(&lab), lab.mm.cache.objects().count()), (0, 0));
    let before = lab.counters.get(Event::Pgpgin);
    for number in [1, 2, 99] {
        let Ok(FileAnswer::Opened(file)) = lab.call(FileRequest::Open(format!("a/{number}"))) else { panic!() };
        lab.call(FileRequest::Close(file)).unwrap();
    }
    assert_eq!((buffers(&lab), lab.counters.get(Event::Pgpgin) - before), (2, 2 * 16));
}

#[test]
fn log_vectors_are_freed_when_their_checkpoint_is_written() {
    let mut lab = Lab::new(2048, 3, 50);
    let files: Vec<u32> = (0..3).map(|number| lab.create(&format!("a/{number}"))).collect();
    assert_eq!(used(&lab, Cache::Kmalloc512), 3, "each is in the open checkpoint");
    for file in &files {
        lab.call(FileRequest::Write { file: *file, offset: Bytes(0), len: Bytes::PAGE }).unwrap();
    }
    // The same tick or another: a second transaction has a vector in reserve, and the inode is in the checkpoint once.
    let reserves = used(&lab, Cache::Kmalloc512) - 3;
    assert!(reserves <= 3);
    lab.call(FileRequest::Sync(files[0])).unwrap();
    // What is written back is logged once more.
    for _ in 0..2 {
        lab.now = lab.now + Picos::from_secs(31);
        rest(&mut lab, 200);
    }
    assert_eq!(lab.mm.cache.xfs.due(), None, "all is written");
    let left = used(&lab, Cache::Kmalloc512) + used(&lab, Cache::Kmalloc1k);
    assert!(left <= 3, "no more than one in reserve for each inode, found {left}");
    lab.call(FileRequest::Write { file: files[0], offset: Bytes(0), len: Bytes::PAGE }).unwrap();
    assert!(lab.mm.cache.xfs.due().is_some(), "it is logged again");
    for file in files {
        lab.call(FileRequest::Close(file)).unwrap();
    }
    for _ in 0..2 {
        lab.now = lab.now + Picos::from_secs(31);
        rest(&mut lab, 200);
    }
    lab.call(FileRequest::DropCaches).unwrap();
    assert_eq!(lab.mm.cache.objects().count(), 0);
}

#[test]
fn a_checkpoint_is_written_when_it_is_an_eighth_of_the_log() {
    let mut lab = Lab::new(2048, 3, 5000);
    // 10 MiB of log, 256 bytes for each new inode: 5120 do not fill an eighth, one more does.
    let mut peak = 0;
    for number in 0..5500 {
        let file = lab.create(&format!("a/{number}"));
        lab.call(FileRequest::Close(file)).unwrap();
        peak = peak.max(used_if(&lab, number));
    }
    assert!(peak > 5000);
    rest(&mut lab, 300);
    assert!(used(&lab, Cache::Kmalloc512) < 500, "found {}", used(&lab, Cache::Kmalloc512));
}

/// Counting is slow: only now and then.
fn used_if(lab: &Lab, number: u32) -> usize {
    if number.is_multiple_of(500) || number == 5110 { used(lab, Cache::Kmalloc512) } else { 0 }
}
