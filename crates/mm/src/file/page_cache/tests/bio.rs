//! Linux: block/bio.c (v6.1): memory of what is on its way to the disk.

use memory::slab::Cache;

use super::*;

/// Bios, and vectors of those that read and that write.
fn bios(lab: &Lab) -> [usize; 3] {
    [Cache::Bio, Cache::Biovec64, Cache::BiovecMax].map(|cache| used(lab, cache))
}

#[test]
fn a_request_has_a_bio_and_a_vector_until_it_ends() {
    let mut lab = Lab::new(2048, 1, 50);
    let file = lab.create("a");
    for page in (0..64).filter(|page| page % 32 < 16) {
        lab.write(file, page).unwrap();
    }
    let mut sync = FileOperation::new(FileRequest::Sync(file));
    let mut most = [0; 3];
    loop {
        let mut cx = Cx::new(CpuId(0), lab.now, &lab.prices, &mut lab.counters).acting_for(ME);
        let step = sync.step(&mut lab.mm, &mut lab.spaces, &mut cx, Time(0));
        lab.now = cx.now();
        let now = bios(&lab);
        most = [0, 1, 2].map(|at| most[at].max(now[at]));
        match step {
            Step::Done(result) => break assert!(result.is_ok()),
            Step::Block(Wait::Io { until, .. }) => lab.now = until,
            _ => {}
        }
    }
    // Two runs of pages; and then four blocks, a descriptor and a record for the journal, each with a bio of its own.
    assert_eq!(most, [6, 0, 2]);
    assert_eq!(bios(&lab), [0; 3]);
}

#[test]
fn who_reads_several_pages_gets_a_smaller_vector() {
    let mut lab = Lab::new(2048, 1, 50);
    let file = lab.create("a");
    for page in 0..32 {
        lab.write(file, page).unwrap();
    }
    lab.call(FileRequest::SyncAll).unwrap();
    lab.call(FileRequest::DropCaches).unwrap();
    let read = FileRequest::Read { file, offset: Bytes(0), len: Bytes::PAGE * 8 };
    let mut read = FileOperation::new(read);
    let mut cx = Cx::new(CpuId(0), lab.now, &lab.prices, &mut lab.counters).acting_for(ME);
    assert!(matches!(read.step(&mut lab.mm, &mut lab.spaces, &mut cx, Time(0)), Step::Block(_)));
    lab.now = cx.now();
    assert_eq!(bios(&lab), [1, 1, 0]);
    lab.run(read).unwrap();
    assert_eq!(bios(&lab), [0; 3]);
}
