//! Linux: fs/ext4, fs/jbd2 (v6.1): what a file takes beside its pages, its inode and its name.

use super::*;
use crate::slab::Cache;

#[test]
fn a_file_has_what_the_journal_knows_and_an_extent_until_its_inode_goes() {
    let mut lab = Lab::new(2048, 1, 50);
    let files: Vec<u32> = (0..70).map(|number| lab.create(&format!("a/{number}"))).collect();
    assert_eq!((used(&lab, Cache::Jbd2Inode), used(&lab, Cache::ExtentStatus)), (70, 0), "nothing is promised yet");
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
    // Who opens a file could write to it.
    let Ok(FileAnswer::Opened(file)) = lab.call(FileRequest::Open("a/7".to_owned())) else { panic!() };
    assert_eq!((used(&lab, Cache::Jbd2Inode), used(&lab, Cache::ExtentStatus)), (1, 0));
    assert!(lab.read(file, 0).is_some());
}
