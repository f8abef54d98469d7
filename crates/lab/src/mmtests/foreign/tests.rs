//! Mails and logs, made up in the forms of others: what is read of them.

use report::Better;

use super::{Found, Numbers, read};

fn read_text(text: &str) -> Result<Vec<Found>, String> {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("mail");
    std::fs::write(&path, text).unwrap();
    let found = read(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "mail"));
    found.map(Option::unwrap_or_default)
}

/// The runs of a text, and their numbers.
fn named(text: &str) -> Vec<(String, Vec<Numbers>)> {
    let found = read_text(text).unwrap().into_iter();
    found.map(|found| (found.run, found.numbers.unwrap_or_default())).collect()
}

/// The error of a text.
fn refused(text: &str) -> String {
    read_text(text).unwrap_err()
}

/// A line for each run: rows and their values, with the titles of tables in brackets.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (run, numbers) in named(text) {
        let mut parts = Vec::new();
        for Numbers { group, runs } in &numbers {
            let title = group.as_ref().map(|group| format!("[{group}] ")).unwrap_or_default();
            let rows = runs.iter().flatten().map(|metric| {
                format!("{} {} {}", metric.name, metric.part.as_deref().unwrap_or_default(), metric.samples[0])
            });
            parts.push(title + &rows.collect::<Vec<_>>().join(", "));
        }
        shown += &format!("{run}: {}\n", parts.join(", "));
    }
    shown
}

#[test]
fn logs_and_old_encodings_are_no_json() {
    assert!(refused("[  581.3] Memory cgroup out of memory: Killed process 1 (x)\n").contains("its form is not known"));
    let bytes = b"aaaa bbbb\n---- ----\n %stddev  %change  %stddev\n 1 \xb1 2%  +100.0%  2  x.y\n";
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("latin-1");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read(&path).unwrap().unwrap().len(), 2);
}

/// Made up, in the form of the robot's mails.
const ROBOT: &str = "\
FYI, we noticed a -10.0% regression of some.test_time due to commit:

=========================================================================================
compiler/mode/tbox_group/test/testcase:
  gcc-1/process/box-1/page_fault1/will-it-scale

commit:
  aaaaaaaaaaaaaa (\"before\")
  bbbbbbbbbbbbbb (\"after\")

aaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbb
---------------- ---------------------------
   fail:runs  %reproduction    fail:runs
       |             |             |
       3:9          -33%            :8     dmesg.WARNING:at#x/0x
     %stddev     %change         %stddev
         \\          |                \\
";

#[test]
fn spreads_are_left_out_however_they_are_written() {
    let rows = "   1000 \u{b1}111%    -50.0%        500 A+- 12%  some.test_time\n   \
                2e+06 \u{105}  2%      -0.1    1.9e+06 \u{fffd}  3%  x.long.name_[y].(z)\n\n  5.0 | .+..+   O.O\n";
    let found = shown(&format!("{ROBOT}{rows}"));
    let expected = "aaaaaaaaaaaa: value some.test_time 1000, value x.long.name_[y].(z) 2000000\n\
                    bbbbbbbbbbbb: value some.test_time 500, value x.long.name_[y].(z) 1900000\n";
    assert_eq!(found, expected);
}

#[test]
fn the_first_sentence_says_which_direction_is_better() {
    let rows = "   1000    -10.0%        900  some.test_time\n   1    +1.0%   2   other.value\n";
    let found = named(&format!("{ROBOT}{rows}"));
    let better: Vec<Better> = found[0].1[0].runs[0].iter().map(|metric| metric.better).collect();
    assert_eq!(better, [Better::Higher, Better::None]);
    let found = named(&format!("{ROBOT}{rows}").replace("a -10.0% regression", "a -10.0% improvement"));
    assert_eq!(found[0].1[0].runs[0][0].better, Better::Lower);
}

#[test]
fn comparisons_of_several_commits_and_several_in_a_mail() {
    let three = "
aaaa bbbb cccc
---- ---- ----
  %stddev  %change  %stddev  %change  %stddev
  100   -50.0%       50    -1.0%       99
  x.first
  200   -50.0%      100    +0.0%      200 \u{b1} 2%  x.second
Thanks.
";
    let rows = "   1000    -10.0%        900  some.test_time\n";
    let found = shown(&format!("{ROBOT}{rows}{three}"));
    let expected = "\
aaaaaaaaaaaa: [will-it-scale page_fault1 process box-1] value some.test_time 1000
bbbbbbbbbbbb: [will-it-scale page_fault1 process box-1] value some.test_time 900
aaaa: [table] value x.first 100, value x.second 200
bbbb: [table] value x.first 50, value x.second 100
cccc: [table] value x.first 99, value x.second 200
";
    assert_eq!(found, expected);
}

#[test]
fn a_damaged_row_names_its_line() {
    let expected = "mail:18: expected OLD CHANGE NEW NAME, found ";
    for rows in ["   1000    -10.0%        9x0  some.test_time\n", "   1000    -10.0%   some.test_time\n", "   1000\n"]
    {
        let message = refused(&format!("{ROBOT}{rows}"));
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(refused(ROBOT).contains("found none"), "no rows");
}

/// Made up, in the form of compare-mmtests.
const MAIL: &str = "\
We saw 5 (10%) of it, as 1.25 (49% less) shows.

mytest Latencies
                            1.0.0                  1.0.0
                          vanilla             patched-v2
Amean     one-1      600.50 (   0.00%)      300.25 *  50.00%*
Amean     two-1        0.00 (   0.00%)        1.00 ( -99.00%)
BHmean-50 1-files/s  500.00 (   0.00%)      250.00 ( -50.00%)
Max       1-files/s    0.00 (   0.00%)        5.00 (   -nan%)

            1.0.0       1.0.0
          vanillapatched-v2
Duration User          77.30       89.10
Ops NUMA pages moved  235.00     4029.00

other machine
-------------
mytest Latencies
                            1.0.0                  1.0.0
                          vanilla             patched-v2
Amean     one-1       60.00 (   0.00%)       66.00 * -10.00%*
";

#[test]
fn tables_of_a_mail_are_told_apart() {
    let expected = "\
1.0.0-vanilla: [mytest Latencies] Amean one-1 600.5, Amean two-1 0, BHmean-50 1-files/s 500, Max 1-files/s 0, \
                    Duration User 77.3, Ops NUMA pages moved 235, [mytest Latencies (2)] Amean one-1 60
1.0.0-patched-v2: [mytest Latencies] Amean one-1 300.25, Amean two-1 1, BHmean-50 1-files/s 250, Max 1-files/s 5, \
                    Duration User 89.1, Ops NUMA pages moved 4029, [mytest Latencies (2)] Amean one-1 66
";
    assert_eq!(shown(MAIL), expected);
    let quoted: String = MAIL.lines().map(|line| format!(">> {line}\n")).collect();
    assert_eq!(shown(&quoted), expected);
}

#[test]
fn a_positive_change_is_what_is_better() {
    let found = named(MAIL);
    let metrics = &found[0].1[0].runs[0];
    let better: Vec<(&str, Better)> = metrics.iter().map(|metric| (metric.name.as_str(), metric.better)).collect();
    let (low, high) = (Better::Lower, Better::Higher);
    let expected = [("Amean", low), ("Amean", low), ("BHmean-50", high), ("Max", Better::None)];
    assert_eq!(better[..4], expected);
}

#[test]
fn rows_may_be_wrapped_and_columns_many() {
    let text = "
        one             two           three
Hmean 14      73.50 (   0.00%)  54.44 * -25.93%*  73.45 *
 -0.07%*
Hmean 100    654.47 (   0.00%)
 385.61 * -41.08%*   771.43
 ( 17.87%)
";
    let expected = "one: Hmean 14 73.5, Hmean 100 654.47\ntwo: Hmean 14 54.44, Hmean 100 385.61\n\
                    three: Hmean 14 73.45, Hmean 100 771.43\n";
    assert_eq!(shown(text), expected);
}
