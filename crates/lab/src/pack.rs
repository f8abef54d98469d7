//! A case in one file: a result of the simulator that runs again on any machine with the same program.
//!
//! The file has both files of the result directory as they are, with their checksums. Machine, kernel, workload, recipe and
//! seed of each cell are in them. It names no path. Who gets such a file trusts nothing in it: it is unpacked up to a size,
//! read as any result is, and each of its cells becomes a line that can only ask for a simulation (`run/travel/line.rs`).

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use flate2::{Compression, GzBuilder, read::GzDecoder};
use report::{RESULT_FILE, brief};
use serde::{Deserialize, Serialize};

use crate::{
    progress::{Progress, RunError},
    provenance,
    run::{self, IDENTITY_FILE, Repeated},
    show::{self, Causes, Format, Print},
    suggest,
    usage::UsageError,
};

/// The end of a case file's name, by which `pagelab run` knows it.
pub const SUFFIX: &str = "case";

/// The version of case files.
const VERSION: u32 = 1;
/// Bytes of the largest case file: what a mail can carry.
const FILE_MAX: usize = 1_000_000;
/// Bytes of the largest result in one.
const RESULT_MAX: u64 = 64 << 20;
/// Lines of the mail beside it.
const MAIL_LINES: usize = 10;
/// Lines of the mail that are not the table's.
const MAIL_FRAME: usize = 4;

/// The contents of a case file, packed by gzip.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    /// [`VERSION`].
    pagelab_case: u32,
    /// Hash of the sources of the program that the result is of.
    program: String,
    /// The release and the commit of that program, for who has another one.
    release: String,
    /// `run.json`, as it is.
    identity: String,
    /// `result.jsonl`, as it is.
    result: String,
}

/// A case file that was written.
#[derive(Debug)]
pub struct Packed {
    /// Cells in it.
    pub cells: usize,
    /// The size of the file in bytes.
    pub bytes: usize,
    /// The mail beside it.
    pub mail: PathBuf,
}

/// Packs the result in `directory` into a file, with a mail about it beside it.
///
/// # Errors
/// A result that does not come out again from its own files: of another program, of real kernels, unfinished, begun from a state
/// file, or with files of its own; a result that is too large; a file that cannot be written.
pub fn pack(directory: &Path, output: &Path) -> Result<Packed, UsageError> {
    if output.extension().is_none_or(|extension| extension != SUFFIX) {
        return Err(UsageError::of_key(
            "-o",
            format!("expected a name that ends with .{SUFFIX}, found {}", output.display()),
        ));
    }
    report::check_whole(output)?;
    let cells = run::lines_again(directory)?.len();
    let read = |name: &str| {
        let path = directory.join(name);
        let text = report::check_regular(&path).and_then(|()| fs::read_to_string(&path));
        text.map_err(|error| UsageError::in_file(path.display(), error))
    };
    let case = CaseFile {
        pagelab_case: VERSION,
        program: provenance::PROGRAM_HASH.to_owned(),
        release: release(),
        identity: read(IDENTITY_FILE)?,
        result: read(RESULT_FILE)?,
    };
    let packed = compress(&serde_json::to_vec(&case).expect("a case serialises"));
    if packed.len() > FILE_MAX {
        return Err(UsageError::in_file(
            directory.display(),
            format!(
                "packed it takes {} KB, and a case file at most {}: run fewer cells (--column, --set, --seeds 1), or without \
                 --sample",
                packed.len() / 1000,
                FILE_MAX / 1000
            ),
        ));
    }
    let mail = output.with_extension("txt");
    let text = mail_of(directory, output, (&packed, cells))?;
    report::write_all_whole(&[(output, &packed), (&mail, text.as_bytes())])?;
    Ok(Packed { cells, bytes: packed.len(), mail })
}

fn release() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), provenance::COMMIT)
}

/// Packs bytes, the same ones always to the same: without name and date.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all bytes")
}

/// Ten lines for who gets the case: the first table, the command, and what it has to come to.
fn mail_of(directory: &Path, output: &Path, (packed, cells): (&[u8], usize)) -> Result<String, UsageError> {
    let print = Print { format: Format::Text, causes: Causes::No, full: false, quiet: true };
    let table = show::render(directory, None, print)?;
    let table: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).take(MAIL_LINES - MAIL_FRAME).collect();
    let name = output.file_name().map_or_else(|| output.into(), PathBuf::from);
    let lines = [
        table.join("\n"),
        String::new(),
        format!("Again: {}", suggest::command(["run", &name.display().to_string()])),
        format!("by pagelab {}, program {}, {cells} cells", release(), provenance::short(provenance::PROGRAM_HASH)),
        format!("blake3 {}", blake3::hash(packed)),
    ];
    Ok(lines.join("\n") + "\n")
}

/// A case that was run again.
#[derive(Debug)]
pub struct RanAgain {
    /// The result directory, with what was packed.
    pub directory: PathBuf,
    /// How its cells came out.
    pub repeated: Repeated,
}

/// Unpacks a case file into a new directory, and runs each of its cells again.
///
/// # Errors
/// A file that is none, or that says more than a case can say; a case of another program; a directory that is there; an
/// interruption.
pub fn run_case(
    file: &Path,
    (out, workers): (Option<&Path>, Option<usize>),
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<RanAgain, RunError> {
    let directory = unpack(file, out)?;
    let repeated = run::repeat(&directory, workers, stop, progress)?;
    Ok(RanAgain { directory, repeated })
}

/// The directory of a case's result: new, or with the same result from an earlier time.
fn unpack(file: &Path, out: Option<&Path>) -> Result<PathBuf, UsageError> {
    let wrong = |problem: String| UsageError::in_file(file.display(), problem);
    let case = read(file).map_err(wrong)?;
    provenance::check_program(&case.program)
        .map_err(|problem| wrong(format!("{problem}, or get pagelab {}", brief(&case.release))))?;
    let directory = out.map_or_else(|| run::directory_of_case(file), Path::to_path_buf);
    let parts = [(IDENTITY_FILE, &case.identity), (RESULT_FILE, &case.result)];
    if directory.exists() {
        let is_same = parts.iter().all(|(name, text)| {
            let path = directory.join(name);
            report::check_regular(&path).and_then(|()| fs::read(path)).is_ok_and(|bytes| bytes == text.as_bytes())
        });
        if !is_same {
            return Err(UsageError::in_file(
                directory.display(),
                "it is there, with another result; name a new one with -o",
            ));
        }
        return Ok(directory);
    }
    let write = || -> Result<(), UsageError> {
        fs::create_dir_all(&directory).map_err(|error| UsageError::in_file(directory.display(), error))?;
        let paths = parts.map(|(name, text)| (directory.join(name), text.as_bytes()));
        report::write_all_whole(&paths.each_ref().map(|(path, bytes)| (path.as_path(), *bytes)))?;
        // Read as any result is: what does not fit together is refused before a cell runs.
        run::lines_again(&directory).map(drop)
    };
    write()
        .inspect_err(|_| run::discard(&directory))
        .map_err(|error| wrong(format!("no case that runs again: {error}")))?;
    Ok(directory)
}

/// Reads a case file.
fn read(file: &Path) -> Result<CaseFile, String> {
    let at_most = |reader: &mut dyn Read, most: u64| -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        reader.take(most + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most))
    };
    let open = report::check_regular(file).and_then(|()| fs::File::open(file));
    let packed = open.and_then(|mut open| at_most(&mut open, FILE_MAX as u64)).map_err(|error| error.to_string())?;
    let packed = packed.ok_or_else(|| format!("no case file: it is larger than {} KB", FILE_MAX / 1000))?;
    let text = at_most(&mut GzDecoder::new(&packed[..]), RESULT_MAX);
    let text = text.map_err(|error| format!("no case file: {error}"))?;
    let text = text.ok_or_else(|| format!("no case file: unpacked it is larger than {} MiB", RESULT_MAX >> 20))?;
    let version: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| format!("no case file: {}", brief(error)))?;
    match version["pagelab_case"].as_u64() {
        None => return Err("no case file: it lacks the key pagelab_case".to_owned()),
        Some(found) if found != u64::from(VERSION) => {
            return Err(format!("it has version {found}, and this program reads {VERSION}"));
        }
        Some(_) => {}
    }
    serde_json::from_value(version).map_err(|error| format!("no case file: {}", brief(error)))
}
