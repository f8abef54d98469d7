//! One phase of a service's file.

use units::{Bytes, Picos};
use workloads::service::{
    Access, Action, Advising, Child, Exec, Freed, Phase, PieceClass, Pinning, Rate, Requests, Share, Until,
};

use super::{
    names::{Names, advising, event, index},
    value::{Count, Part, PartPerSecond, PerSecond, SizeOf, Span},
};
use crate::{
    source::{TableReader, unknown},
    usage::UsageError,
};

/// Keys of any phase.
const COMMON: &[&str] = &["name", "do", "after", "every", "beside", "times", "for", "until", "rate", "block"];

/// Each operation, with the keys that it alone has, and the bytes of its blocks.
const OPERATIONS: &[(&str, &[&str], Bytes)] = &[
    ("allocate", &["size", "sizes", "hold", "fill"], Bytes::mib(2)),
    ("free", &["part", "holes", "keep_mapping"], Bytes::mib(1)),
    ("access", &["of", "pattern", "writes", "churn"], Bytes::kib(4)),
    ("read", &["size", "file", "random", "written", "mapped"], Bytes::kib(128)),
    ("write", &["size", "file", "sync", "remove"], Bytes::kib(128)),
    ("fork", &["save"], Bytes::mib(1)),
    ("exec", &["size", "cpu", "writes", "file"], Bytes::mib(1)),
    ("sleep", &[], Bytes::mib(1)),
    ("compute", &["cpu"], Bytes::mib(1)),
    ("pin", &["size"], Bytes::mib(1)),
    ("drop", &[], Bytes::mib(1)),
    ("madvise", &["advice"], Bytes::mib(1)),
];

/// Operations of a phase, at most: a simulation takes about a microsecond for each.
const OPERATIONS_MAX: u64 = 1_000_000_000;

/// The phase at a place: its process and its number there.
pub(super) fn read(
    table: &TableReader<'_>,
    names: &Names,
    (process, number): (usize, usize),
) -> Result<Phase, UsageError> {
    let operation: String = table.required("do")?;
    let Some((_, own, block)) = OPERATIONS.iter().find(|(name, ..)| *name == operation) else {
        let all: Vec<&str> = OPERATIONS.iter().map(|(name, ..)| *name).collect();
        return Err(table.error("do", unknown("operation", &operation, &all)));
    };
    let valid: Vec<&str> = COMMON.iter().chain(*own).copied().collect();
    let table = table.clone().only("key", &valid)?;
    let every = table.optional("every")?.map(|Span(time)| time);
    let beside = table.optional::<bool>("beside")?.unwrap_or(false);
    if beside && every.is_some() {
        return Err(table.error("beside", "`every` says already that it runs beside another phase"));
    }
    if (beside || every.is_some()) && number == 0 {
        let key = if beside { "beside" } else { "every" };
        return Err(table.error(key, "there is no phase before it that it could run beside"));
    }
    if beside && operation == "fork" {
        return Err(table.error("beside", "a fork beside another phase is repeated: give it `every`"));
    }
    if every == Some(Picos(0)) {
        return Err(table.error("every", "expected a time above 0"));
    }
    let action = action((&table, &names[process].1), &operation, block_of(&table, *block)?)?;
    let requests = requests(&table, names, (process, &operation), block_of(&table, *block)?)?;
    Ok(Phase {
        name: names[process].1[number].clone(),
        after: event(&table, "after", names, Some(process))?,
        every,
        beside,
        requests,
        measured: is_measured(&operation),
        action,
    })
}

/// Latencies that are shown where the file does not say which.
fn is_measured(operation: &str) -> bool {
    !matches!(operation, "sleep" | "compute" | "drop" | "madvise")
}

fn block_of(table: &TableReader<'_>, default: Bytes) -> Result<Bytes, UsageError> {
    let block: Bytes = table.optional("block")?.unwrap_or(default);
    let is_fine = block.0.is_multiple_of(Bytes::PAGE.0) && (Bytes::PAGE..=Bytes::gib(64)).contains(&block);
    if !is_fine {
        return Err(table.error("block", format!("expected a multiple of 4KiB from 4KiB to 64GiB, found {block}")));
    }
    Ok(block)
}

fn requests(
    table: &TableReader<'_>,
    names: &Names,
    (process, operation): (usize, &str),
    block: Bytes,
) -> Result<Requests, UsageError> {
    let time = table.optional("for")?.map(|Span(time)| time);
    let times = table.optional("times")?.map(|Count(times)| times);
    let until: Option<String> = table.optional("until")?;
    let is_sleep = operation == "sleep";
    let said = [time.is_some() && !is_sleep, times.is_some(), until.is_some()];
    if said.into_iter().filter(|is_said| *is_said).count() > 1 {
        return Err(table.error("for", "expected one of `for`, `times` and `until`"));
    }
    if let Some(times) = times.filter(|times| !(1..=OPERATIONS_MAX).contains(times)) {
        return Err(table.error("times", format!("expected a whole number from 1 to {OPERATIONS_MAX}, found {times}")));
    }
    let until = match (time.filter(|_| !is_sleep), times, until) {
        (Some(time), ..) => Until::Time(time),
        (_, Some(times), _) => Until::Times(times),
        (.., Some(name)) => {
            let all: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
            match names.iter().position(|(known, _)| *known == name).filter(|other| *other != process) {
                Some(other) => Until::Ended(index(other)),
                None => return Err(table.error("until", unknown("process", &name, &all))),
            }
        }
        _ if operation == "access" => {
            return Err(table.error("for", "missing; expected `for`, `times` or `until`: how long memory is accessed"));
        }
        _ => Until::Times(1),
    };
    let rate = table.optional("rate")?.map(|PerSecond(rate)| rate);
    let once = ["free", "pin", "drop", "madvise"];
    if once.contains(&operation) && (rate.is_some() || until != Until::Times(1)) {
        return Err(table.error(
            "do",
            format!("{operation} is one operation: `rate`, `for`, `times` and `until` have no meaning for it"),
        ));
    }
    if let (Some(rate), Until::Time(time)) = (rate, until) {
        let each_second = match rate {
            Rate::Operations(thousandths) => thousandths / 1000,
            Rate::Bytes(bytes) => bytes / block.0,
        };
        if u128::from(each_second) * u128::from(time.0) > u128::from(OPERATIONS_MAX) * u128::from(Picos::from_secs(1).0)
        {
            let problem =
                format!("expected at most {OPERATIONS_MAX} operations in a phase: a smaller rate, or a larger block");
            return Err(table.error("rate", problem));
        }
    }
    if operation == "fork" && !matches!(until, Until::Times(_)) {
        return Err(table.error("do", "a fork is repeated by `times`, or beside another phase by `every`"));
    }
    Ok(Requests { rate, block, until })
}

fn action((table, phases): (&TableReader<'_>, &[String]), operation: &str, block: Bytes) -> Result<Action, UsageError> {
    let flag = |key: &str| Ok::<_, UsageError>(table.optional::<bool>(key)?.unwrap_or(false));
    let size = |key: &str| table.required::<SizeOf>(key).map(|SizeOf(size)| size);
    let part = |key: &str, default: u32| Ok::<_, UsageError>(table.optional(key)?.map_or(default, |Part(part)| part));
    let time = |key: &str| match table.required::<Span>(key)? {
        Span(Picos(0)) => Err(table.error(key, "expected a time above 0")),
        Span(time) => Ok(time),
    };
    Ok(match operation {
        "allocate" => Action::Allocate {
            size: size("size")?,
            pieces: pieces(table)?,
            hold: table.optional("hold")?.map(|Span(time)| time),
            fill: flag("fill")?,
        },
        "free" => Action::Free(Freed {
            part: part("part", 1_000_000)?,
            holes: flag("holes")?,
            keeps_mapping: flag("keep_mapping")?,
        }),
        "access" => Action::Access(Access {
            of: allocated_by(table, phases)?,
            pattern: pattern(table)?,
            writes: part("writes", 0)?,
            churn: table.optional("churn")?.map_or(0, |PartPerSecond(part)| part),
        }),
        "read" => {
            let size = size("size")?;
            let file = table.optional("file")?.map_or(size, |SizeOf(file)| file);
            Action::Read { size, file, random: flag("random")?, written: flag("written")?, mapped: flag("mapped")? }
        }
        "write" => {
            let file: Option<Bytes> = table.optional("file")?;
            if let Some(file) = file.filter(|file| *file < Bytes::PAGE) {
                return Err(table.error("file", format!("expected at least 4KiB, found {file}")));
            }
            Action::Write { size: size("size")?, file, sync: flag("sync")?, remove: flag("remove")? }
        }
        "fork" => Action::Fork(Child { writes: table.optional("save")?.unwrap_or(true) }),
        "exec" => exec(table, block)?,
        "sleep" => Action::Sleep(time("for")?),
        "compute" => Action::Compute(time("cpu")?),
        "pin" => Action::Pin(Pinning { size: size("size")? }),
        "drop" => Action::Drop,
        "madvise" => match advising(table, "advice")? {
            Advising::Default => return Err(table.error("advice", "expected \"huge\" or \"base\"")),
            advising => Action::Madvise(advising),
        },
        other => unreachable!("{other} is in the table of operations"),
    })
}

/// The phase of this process whose memory is accessed.
fn allocated_by(table: &TableReader<'_>, phases: &[String]) -> Result<Option<u32>, UsageError> {
    let Some(name) = table.optional::<String>("of")? else { return Ok(None) };
    let Some(phase) = phases.iter().position(|known| *known == name) else {
        let phases: Vec<&str> = phases.iter().map(String::as_str).collect();
        return Err(table.error("of", unknown("phase", &name, &phases)));
    };
    Ok(Some(index(phase)))
}

fn exec(table: &TableReader<'_>, block: Bytes) -> Result<Action, UsageError> {
    let bytes = |key: &str, default: Bytes| Ok::<_, UsageError>(table.optional(key)?.unwrap_or(default));
    let file = bytes("file", block)?;
    if file < Bytes::PAGE {
        return Err(table.error("file", format!("expected at least 4KiB, found {file}")));
    }
    Ok(Action::Exec(Exec {
        size: bytes("size", Bytes(0))?,
        compute: table.optional("cpu")?.map(|Span(time)| time).unwrap_or_default(),
        writes: bytes("writes", Bytes(0))?,
        file,
    }))
}

/// Classes of pieces: sizes alone, or tables with a share and a lifetime.
fn pieces(table: &TableReader<'_>) -> Result<Vec<PieceClass>, UsageError> {
    const MAX: usize = 16;
    if !table.has("sizes") {
        return Ok(Vec::new());
    }
    let pieces = if let Ok(Some(sizes)) = table.optional::<Vec<Bytes>>("sizes") {
        sizes.into_iter().map(|size| PieceClass { size, weight: 1, lifetime: None }).collect()
    } else {
        table.tables("sizes")?.into_iter().map(piece).collect::<Result<Vec<_>, _>>()?
    };
    let is_fine = |class: &PieceClass| {
        class.size.0.is_multiple_of(Bytes::PAGE.0) && (Bytes::PAGE..=Bytes::gib(1)).contains(&class.size)
    };
    if let Some(class) = pieces.iter().find(|class| !is_fine(class)) {
        return Err(table.error("sizes", format!("expected multiples of 4KiB from 4KiB to 1GiB, found {}", class.size)));
    }
    if pieces.is_empty() || pieces.len() > MAX {
        return Err(table.error("sizes", format!("expected 1 to {MAX} sizes, found {}", pieces.len())));
    }
    Ok(pieces)
}

/// A class of pieces with a share and a lifetime.
fn piece(class: TableReader<'_>) -> Result<PieceClass, UsageError> {
    let class = class.only("key", &["size", "share", "lifetime"])?;
    let Count(weight) = class.optional("share")?.unwrap_or(Count(1));
    let Some(weight) = u32::try_from(weight).ok().filter(|weight| (1..=1000).contains(weight)) else {
        return Err(class.error("share", format!("expected a whole number from 1 to 1000, found {weight}")));
    };
    let lifetime = class.optional("lifetime")?.map(|Span(time)| time);
    if lifetime.is_some_and(|time| time < Picos::from_micros(1)) {
        return Err(class.error("lifetime", "expected a time of at least a microsecond"));
    }
    Ok(PieceClass { size: class.required("size")?, weight, lifetime })
}

fn pattern(table: &TableReader<'_>) -> Result<Share, UsageError> {
    const EXPECTED: &str = "expected \"sequential\", \"uniform\", \"zipf 0.99\" (exponent from 0 to 4), or \"hot 10% 90%\" \
                            (part of the memory, its part of accesses), with a time behind it after which another part is hot";
    let Some(text) = table.optional::<String>("pattern")? else { return Ok(Share::Uniform) };
    let bad = || table.error("pattern", format!("{EXPECTED}, found {}", report::brief(format_args!("{text:?}"))));
    let words: Vec<&str> = text.split_whitespace().collect();
    let part = |word: &str| word.parse::<Part>().map(|Part(part)| part).map_err(|()| bad());
    match words[..] {
        ["sequential"] => Ok(Share::Sequential),
        ["uniform"] => Ok(Share::Uniform),
        ["zipf"] => Ok(Share::Zipf(990)),
        ["zipf", exponent] => {
            let exponent: f64 = exponent.parse().map_err(|_| bad())?;
            if !(0.0..=4.0).contains(&exponent) {
                return Err(bad());
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 4000")]
            Ok(Share::Zipf((exponent * 1000.0).round() as u32))
        }
        ["hot", of, accesses, ref rest @ ..] if rest.len() < 2 => {
            let moves = match rest {
                [] => None,
                [time, ..] => Some(time.parse::<Span>().map(|Span(time)| time).map_err(|()| bad())?),
            };
            Ok(Share::Hot { part: part(of)?, accesses: part(accesses)?, moves })
        }
        _ => Err(bad()),
    }
}

/// Memory that a phase leaves to its process.
pub(super) fn gives_memory(phase: &Phase) -> bool {
    matches!(phase.action, Action::Allocate { hold: None, .. })
}

/// Whether a phase can do nothing without memory of its process.
pub(super) fn needs_memory(phase: &Phase) -> bool {
    matches!(phase.action, Action::Free(_) | Action::Access(_) | Action::Fork(_) | Action::Madvise(_))
}
