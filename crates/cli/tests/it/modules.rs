//! Guests of machines that need kernel modules.

use crate::support::{TINY, guests, room::Room, skip, words};
use linux::{kernel_image, module::ModuleTree};

const NAME: &str = "vm_modules_load";

#[test]
fn vm_modules_load() {
    let Some(_turn) = guests::turn(NAME) else { return };
    let image = kernel_image::resolve("6.1").expect("it was there a moment ago");
    let Some(modules) = image.modules else {
        return skip(NAME, "kernel 6.1 has no modules beside it");
    };
    let tree = ModuleTree::open(&modules).expect("the modules of 6.1");
    assert!(!tree.closure(&["virtio_blk"]).expect("6.1 has it").is_empty(), "built in: nothing would be loaded");

    let room = Room::new();
    let run = |file: &str| {
        room.run(&words(&[&["run", "fault-storm", "--target", "vm", "--accel", "tcg", "--machine", file], &TINY]))
    };
    run(&room.give("blk.toml", machine("virtio_blk"))).expect(0);
    room.assert_nothing_left("a run with a module");
    let answer = run(&room.give("bulk.toml", machine("virtio_bulk"))).expect(2);
    answer.says(&["no module virtio_bulk", "virtio_blk"]);
    room.assert_nothing_left("an unknown module");
}

fn machine(module: &str) -> String {
    format!("about = 'x'\nmodules = ['{module}']\n[[node]]\nid = 0\nmemory = '512MiB'\ncpus = '0'\n")
}
