//! The order in which tasks get the lock, by the rules of each kernel.

use super::*;

const US: u64 = Picos::from_micros(1).0;
const MS: u64 = 1000 * US;

use Outcome::{Held, Sleep, Spin};

/// A lock, and the rules that it follows.
struct Case {
    lock: Rwsem,
    rules: Rules,
}

impl Case {
    fn new(rules: Rules) -> Self {
        Self { lock: Rwsem::default(), rules }
    }

    /// A task wants it; whoever has it runs.
    fn wants(&mut self, task: u32, mode: Mode, now: u64) -> (Outcome, Told) {
        self.lock.acquire(Wish { task: TaskId(task), mode, now: Time(now) }, self.rules, |_| true)
    }

    fn reads(&mut self, task: u32, now: u64) -> Outcome {
        self.wants(task, Mode::Read, now).0
    }

    fn writes(&mut self, task: u32, now: u64) -> Outcome {
        self.wants(task, Mode::Write, now).0
    }

    fn up(&mut self, mode: Mode, now: u64) -> Told {
        self.lock.release(mode, Time(now), self.rules)
    }
}

fn woken(task: u32) -> Told {
    Told { woken: Some(TaskId(task)), ..Told::default() }
}

fn tries(task: u32) -> Told {
    Told { tries: Some(TaskId(task)), ..Told::default() }
}

fn granted(tasks: &[u32]) -> Told {
    Told { granted: tasks.iter().map(|task| TaskId(*task)).collect(), ..Told::default() }
}

#[test]
fn the_oldest_serve_in_the_order_of_arrival() {
    let mut case = Case::new(Rules::Sleeping);
    assert_eq!(case.reads(0, 1), Held);
    assert_eq!(case.writes(1, 2), Sleep);
    assert_eq!(case.reads(2, 3), Sleep, "behind the writer");
    assert_eq!(case.writes(3, 3), Sleep);
    assert_eq!(case.reads(4, 4), Sleep);
    assert_eq!(case.up(Mode::Read, 10), woken(1));
    assert_eq!(case.writes(5, 11), Sleep, "nobody overtakes who wakes up");
    assert_eq!(case.writes(1, 12), Held);
    assert_eq!(case.up(Mode::Write, 20), granted(&[2]), "those before the next writer");
    assert_eq!(case.up(Mode::Read, 30), woken(3));
}

#[test]
fn from_3_16_on_a_writer_spins_while_another_one_runs() {
    let mut case = Case::new(Rules::Spinning);
    assert_eq!(case.writes(0, 1), Held);
    let sleeps = case.lock.acquire(Wish { task: TaskId(1), mode: Mode::Write, now: Time(2) }, case.rules, |_| false);
    assert_eq!(sleeps.0, Sleep, "its owner sleeps");
    assert_eq!(case.writes(2, 2), Spin(None));
    assert_eq!(case.reads(3, 2), Sleep, "readers do not");
    let told = case.up(Mode::Write, 9);
    assert_eq!(told, Told { tries: Some(TaskId(2)), ..woken(1) });
    assert_eq!(case.writes(2, 9), Held, "who spins is faster than who wakes up");
    assert_eq!(case.writes(1, 15), Sleep, "and that one sleeps again");
    assert_eq!(case.up(Mode::Write, 9 * MS), woken(1), "however long it has waited");
    assert_eq!(case.writes(4, 9 * MS), Held, "a third one is faster again");
}

#[test]
fn up_to_5_2_a_sleeping_writer_blocks_new_readers() {
    let mut case = Case::new(Rules::Spinning);
    assert_eq!((case.reads(0, 0), case.reads(1, 0)), (Held, Held));
    assert_eq!(case.writes(2, 1), Sleep);
    assert_eq!(case.reads(3, 2), Sleep);
    assert_eq!(case.up(Mode::Read, 3), Told::default(), "one has it still");
    assert_eq!(case.up(Mode::Read, 4), woken(2));
    assert_eq!(case.reads(1, 5), Sleep, "even while the writer wakes up");
    assert_eq!(case.writes(2, 6), Held);
    assert_eq!(case.up(Mode::Write, 7), granted(&[3, 1]));
}

#[test]
fn from_5_3_on_a_writer_spins_on_readers_then_forbids_spinning() {
    for rules in [Rules::SpinningOnReaders, Rules::Stealing] {
        let mut case = Case::new(rules);
        assert_eq!((case.reads(0, 0), case.reads(1, 0)), (Held, Held));
        let until = Time(5 * US + 11 * US);
        assert_eq!(case.writes(2, 5 * US), Spin(Some(until)), "10 us, and half a one for each reader");
        assert_eq!(case.writes(3, 6 * US), Spin(None), "behind the first one");
        assert_eq!(case.up(Mode::Read, 7 * US), Told::default());
        assert_eq!(case.writes(2, 8 * US), Spin(Some(until)), "the time goes on");
        case.lock.forbid_spinning();
        assert_eq!(case.wants(2, Mode::Write, until.0), (Sleep, tries(3)));
        assert_eq!(case.writes(3, until.0), Sleep, "the next one gives up at once");
        assert_eq!(case.writes(4, until.0 + 1), Sleep);
        assert_eq!(case.reads(5, until.0 + 1), Sleep, "so that readers come to an end");
        assert_eq!(case.up(Mode::Read, 20 * US), woken(2));
        assert_eq!(case.writes(2, 30 * US), Held);
        assert_eq!(case.writes(6, 31 * US), Spin(None), "on a writer they spin again");
    }
}

#[test]
fn a_writer_that_spins_on_readers_comes_in_between_two_short_holds() {
    for rules in [Rules::SpinningOnReaders, Rules::Stealing] {
        let mut case = Case::new(rules);
        assert_eq!(case.reads(0, 0), Held);
        assert!(matches!(case.writes(1, US), Spin(Some(_))));
        assert_eq!(case.up(Mode::Read, 2 * US), tries(1));
        assert_eq!(case.writes(1, 2 * US), Held);
    }
}

#[test]
fn from_5_3_to_5_10_readers_spin_until_that_is_forbidden() {
    let mut case = Case::new(Rules::SpinningOnReaders);
    assert_eq!(case.writes(0, 0), Held);
    assert_eq!(case.reads(1, 1), Spin(None), "while the writer runs");
    assert_eq!(case.lock.acquire(wish(2, Mode::Write, 2), case.rules, |_| false).0, Sleep);
    assert_eq!(case.up(Mode::Write, 3).tries, Some(TaskId(1)));
    assert_eq!(case.reads(1, 3), Held, "before the writer that sleeps");
    assert_eq!(case.reads(3, 4), Held, "another one beside it");
    assert!(matches!(case.writes(4, 5), Spin(Some(_))));
    case.lock.forbid_spinning();
    assert_eq!(case.writes(4, 16 * US), Sleep);
    assert_eq!(case.reads(5, 16 * US), Sleep);
    case.up(Mode::Read, 17 * US);
    case.up(Mode::Read, 18 * US);
    assert_eq!(case.writes(2, 20 * US), Held);
    assert_eq!(case.up(Mode::Write, 21 * US), woken(4));
    assert_eq!(case.writes(4, 30 * US), Held, "it had been forbidden when this one began to wait");
    assert_eq!(case.reads(6, 31 * US), Sleep, "so readers do not spin for it");
}

#[test]
fn from_5_11_on_a_reader_steals_only_a_free_lock() {
    let mut case = Case::new(Rules::Stealing);
    assert_eq!(case.reads(0, 0), Held);
    case.lock.forbid_spinning();
    assert_eq!(case.writes(1, 1), Sleep);
    assert_eq!(case.reads(2, 2), Sleep, "not beside another reader");
    assert_eq!(case.up(Mode::Read, 3), woken(1));
    assert_eq!(case.reads(0, 4), Held, "it is faster than who wakes up");
    assert_eq!(case.writes(1, 9), Sleep);
    assert_eq!(case.up(Mode::Read, 10), woken(1));
    assert_eq!(case.writes(1, 11), Held);
    assert_eq!(case.lock.downgrade(Time(12), Rules::Stealing), granted(&[2]));
    assert_eq!(case.reads(3, 13), Held, "nobody waits");
}

#[test]
fn a_reader_that_steals_takes_the_readers_of_the_queue_along() {
    let mut case = Case::new(Rules::Stealing);
    assert_eq!(case.writes(0, 0), Held);
    assert_eq!((case.reads(1, 1), case.reads(2, 2)), (Sleep, Sleep));
    assert_eq!(case.writes(3, 3), Spin(None));
    assert_eq!(case.up(Mode::Write, 4), tries(3), "readers are not let in before one who spins");
    // The spinner was preempted, say, and did not come.
    assert_eq!(case.wants(4, Mode::Read, 5), (Held, Told { tries: Some(TaskId(3)), ..granted(&[1, 2]) }));
}

#[test]
fn from_5_3_on_the_oldest_waiter_gets_the_handoff() {
    for rules in [Rules::SpinningOnReaders, Rules::Stealing] {
        let mut case = Case::new(rules);
        assert_eq!(case.reads(0, 0), Held);
        case.lock.forbid_spinning();
        assert_eq!(case.writes(1, MS), Sleep);
        for now in [3 * MS, 7 * MS] {
            assert_eq!(case.up(Mode::Read, now), woken(1));
            case.lock.no_read_spin = false;
            assert_eq!(case.reads(0, now), Held, "the reader comes again before it has woken up");
            case.lock.forbid_spinning();
            assert_eq!(case.writes(1, now + US), Sleep, "4 ms count by the tick");
            assert!(!case.lock.handoff);
        }
        assert_eq!(case.writes(1, 8 * MS), Sleep, "the lock is taken when it wakes up overdue: it asks");
        assert_eq!(case.up(Mode::Read, 9 * MS), woken(1));
        assert_ne!(case.reads(0, 9 * MS), Held);
        assert_ne!(case.writes(2, 9 * MS), Held);
        assert_eq!(case.writes(1, 9 * MS + US), Held);
    }
}

#[test]
fn a_writer_that_spins_comes_before_an_overdue_reader_which_is_next() {
    let mut case = Case::new(Rules::Stealing);
    assert_eq!(case.writes(0, 0), Held);
    assert_eq!(case.reads(1, 0), Sleep);
    assert_eq!(case.writes(2, MS), Spin(None));
    assert_eq!(case.up(Mode::Write, 9 * MS), tries(2), "it sees the lock free before the reader has woken up");
    assert_eq!(case.writes(2, 9 * MS), Held);
    assert!(case.lock.handoff, "who let go wanted to let the reader in");
    assert_eq!(case.writes(3, 9 * MS), Spin(None));
    assert_eq!(case.up(Mode::Write, 10 * MS), Told { tries: Some(TaskId(3)), ..granted(&[1]) });
}

#[test]
fn from_5_3_on_a_wake_up_admits_all_queued_readers() {
    for (rules, first) in [(Rules::Spinning, &[1][..]), (Rules::SpinningOnReaders, &[1, 3]), (Rules::Stealing, &[1, 3])]
    {
        let mut case = Case::new(rules);
        assert_eq!(case.writes(0, 0), Held);
        for (task, mode) in [(1, Mode::Read), (2, Mode::Write), (3, Mode::Read)] {
            assert_eq!(case.lock.acquire(wish(task, mode, 1), rules, |_| false).0, Sleep);
        }
        assert_eq!(case.lock.downgrade(Time(2), rules), granted(first), "{rules:?}");
        assert_eq!(case.up(Mode::Read, 3), Told::default());
    }
}

fn wish(task: u32, mode: Mode, now: u64) -> Wish {
    Wish { task: TaskId(task), mode, now: Time(now) }
}
