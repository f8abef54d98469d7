//! Requests to devices, and the tasks that have sent them: for the facts of those who wait for one.

use std::collections::BTreeMap;

use memory::fact::{Device, Fact, Told};
use units::Time;

use crate::ids::TaskId;

/// Requests that may be under way, by the instants of their ends. A device ends one at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(BTreeMap<(u16, Device, Time), Sent>);

/// A request.
#[derive(Clone, Copy, Debug)]
struct Sent {
    by: TaskId,
    is_write: bool,
    pages: u64,
}

impl Requests {
    /// Notes a request, and forgets those that have ended.
    pub(super) fn note(&mut self, kernel: u16, by: TaskId, told: &Told) {
        let Fact::Sent { device, is_write, pages, done, joins, .. } = told.fact else { return };
        let ended = |first: &(u16, Device, Time)| (first.0, first.1) == (kernel, device) && first.2 < told.at;
        while let Some(first) = self.0.range((kernel, device, Time(0))..).next().map(|(at, _)| *at).filter(ended) {
            self.0.remove(&first);
        }
        let joined = joins.and_then(|before| self.0.remove(&(kernel, device, before)));
        let pages = joined.map_or(0, |joined| joined.pages) + pages;
        self.0.insert((kernel, device, done), Sent { by, is_write, pages });
    }

    /// The fact that a task waits for a device from now on.
    pub(super) fn wait(
        &self,
        (kernel, device): (u16, Device),
        (now, until): (Time, Time),
        name: impl Fn(TaskId) -> String,
    ) -> Fact {
        let at = |time: Time| (kernel, device, time);
        let request = self.0.get(&at(until)).map(|sent| (sent.is_write, name(sent.by)));
        let (mut reads, mut writes) = (0, 0);
        let mut by_task: BTreeMap<TaskId, u64> = BTreeMap::new();
        for sent in self.0.range(at(Time(now.0 + 1))..at(until.max(Time(now.0 + 1)))).map(|(_, sent)| sent) {
            *(if sent.is_write { &mut writes } else { &mut reads }) += sent.pages;
            *by_task.entry(sent.by).or_default() += sent.pages;
        }
        // Of equal ones the first task.
        let most = by_task.into_iter().max_by_key(|(task, pages)| (*pages, std::cmp::Reverse(*task)));
        Fact::DeviceWait { device, request, reads, writes, most: most.map(|(task, _)| name(task)), until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_says_which_request_and_how_many_pages_are_ahead() {
        let mut requests = Requests::default();
        let mut send = |at: u64, by: u32, is_write: bool, done: u64, joins: Option<u64>| {
            let (device, done, joins, took) = (Device::Swap, Time(done), joins.map(Time), units::Picos(0));
            let fact = Fact::Sent { device, is_write, pages: 1, done, joins, took };
            requests.note(0, TaskId(by), &Told { at: Time(at), by, kernel: 0, fact });
        };
        send(10, 7, true, 100, None);
        send(10, 7, true, 110, Some(100));
        send(20, 3, false, 130, None);
        send(30, 7, true, 150, None);
        let wait = |now: u64, until: u64| {
            let name = |task: TaskId| format!("task {}", task.0);
            requests.wait((0, Device::Swap), (Time(now), Time(until)), name)
        };
        let fact = |request: Option<(bool, &str)>, (reads, writes): (u64, u64), most: Option<&str>, until: u64| {
            let request = request.map(|(is_write, by)| (is_write, by.to_owned()));
            let (device, most, until) = (Device::Swap, most.map(str::to_owned), Time(until));
            Fact::DeviceWait { device, request, reads, writes, most, until }
        };
        assert_eq!(wait(40, 130), fact(Some((false, "task 3")), (0, 2), Some("task 7"), 130));
        assert_eq!(wait(120, 150), fact(Some((true, "task 7")), (1, 0), Some("task 3"), 150));
        assert_eq!(wait(140, 145), fact(None, (0, 0), None, 145));
    }
}
