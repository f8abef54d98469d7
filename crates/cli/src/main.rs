//! The `pagelab` command: parsing what the user writes, printing what the laboratory says.

mod args;
mod evidence;
mod inner;
mod list;
mod progress;
mod shell;
mod travel;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use clap::Parser;
use lab::{
    calibrate,
    progress::{Progress, RunError},
    run,
    show::{self, Causes, PageWanted, Which, between::BetweenWanted},
    state::RecipeStart,
    suggest::{self, StateMake},
    usage::UsageError,
    why::parting::Parting,
};

use crate::{
    args::{Command, FormatArg, Machine, Pagelab, State, WhyFormat},
    evidence::Ran,
};

/// A user's mistake, or a target asked for by name that cannot be had.
const USAGE: u8 = 2;
/// A change that was not to be.
const CHANGED: u8 = 3;
/// 128 + SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    // Process 1 of a container is no init of ours: only our own guests have the mark on their kernel's command line.
    if linux::guest::is_init() {
        linux::guest::main();
    }
    let command = match Pagelab::try_parse() {
        Ok(pagelab) => pagelab.command,
        // clap prints help to stdout with status 0 and mistakes to stderr with status 2.
        Err(error) => error.exit(),
    };
    match dispatch(command) {
        Ok(code) => {
            for notice in lab::notice::take() {
                let _ = writeln!(io::stderr(), "pagelab: {notice}");
            }
            code
        }
        // An error is one message.
        Err(error) => {
            let _ = writeln!(io::stderr(), "pagelab: {error:#}");
            ExitCode::from(status(&error))
        }
    }
}

fn status(error: &anyhow::Error) -> u8 {
    if error.is::<UsageError>() {
        return USAGE;
    }
    match error.downcast_ref::<RunError>() {
        Some(RunError::Usage(_)) => USAGE,
        Some(RunError::Interrupted { .. } | RunError::InterruptedEarly) => INTERRUPTED,
        Some(RunError::Failed(_)) | None => 1,
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(run) => run_experiment(&run),
        Command::Show { result, seeds, causes, series, stalls, format, look } => {
            let causes = if causes { Causes::Required } else { Causes::No };
            let count = stalls.map(usize::from);
            print(&match (FormatArg::try_from(format), &series, count) {
                (Ok(format), Some(names), _) => show::series(&result, seeds, names, format.into())?,
                (Ok(format), None, Some(count)) => show::stalls(&result, seeds, count, format.into())?,
                (Ok(format), None, None) => show::render(&result, seeds, look.of(format, causes))?,
                (Err(args::AsColumns), Some(names), _) => show::columns(&result, seeds, Which::Series(names))?,
                (Err(args::AsColumns), None, Some(count)) => show::columns(&result, seeds, Which::Stalls(count))?,
                (Err(args::AsColumns), None, None) => show::columns(&result, seeds, Which::Tables(causes))?,
            })
        }
        Command::Report(args) => page(&args.wanted()),
        Command::Map(args) => print(&show::map(&args.wanted())?),
        Command::Why(args) => why(&args),
        Command::Fork(args) => fork(&args),
        Command::Pack(args) => pack(&args),
        Command::Compare(args) => compare(&args),
        Command::Ladder(args) => ladder(&args),
        Command::Sweep(args) => sweep(&args),
        Command::Advise(args) => advise(&args),
        Command::Cells(args) => travel::cells(&args),
        Command::Worker => travel::worker(),
        Command::Collect(args) => travel::collect(&args),
        Command::Noise(args) => print(&show::compare::noise(&args.results, args.seeds, args.full, args.format.into())?),
        Command::Claims(args) => evidence::claims(&args),
        Command::Score(args) => evidence::score(&args),
        Command::Export(args) => export(&args),
        Command::Trust(args) => print(&lab::trust::of(&args.experiment)?.text()),
        Command::Calibrate(args) => calibrate(&args),
        Command::Machine(Machine::Import(wanted)) => import(&wanted),
        Command::Machine(Machine::Show { machine }) => print(&lab::machine::file(&machine)?),
        Command::State(State::Make(args)) => make_state(&args),
        Command::State(State::Show { file }) => print(&lab::state::text(&file)?),
        Command::Completions(args) => print(&shell::completions(args.shell)),
        Command::Man(args) => man(&args),
        Command::List(list) => print(&list::text(list.what, list.all)),
        Command::Cell => inner::cell(),
        Command::Task { entry } => inner::task(&entry),
        Command::Sampler { every_ps } => inner::sampler(every_ps),
        Command::Guard => inner::guard(),
    }
}

fn run_experiment(args: &args::Run) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut progress = progress::Reporter::new(args.progress, args.look.quiet);
    if let Some(file) = args.case()? {
        return run_case(file, args, &stop, &mut progress);
    }
    let request = args.request();
    if args.explain {
        return print(&lab::explain::explained(&request)?);
    }
    args.report.as_deref().map_or(Ok(()), check_page)?;
    let finished = run::run(&request, &stop, &mut progress);
    progress.clear();
    let finished = finished?;
    if finished.cells == 0 {
        // Every cell failed: there is nothing to print but why.
        progress.finished(&finished);
        return Ok(ExitCode::FAILURE);
    }
    let causes = if args.causes { Causes::Yes } else { Causes::No };
    let code = print(&show::render(&finished.directory, None, args.look.of(args.format, causes))?)?;
    progress.finished(&finished);
    let is_whole = finished.failures.is_empty();
    if let Some(output) = &args.report {
        let written = write_page(&args::of_run(&finished.directory, output), &stop, &mut progress);
        match written {
            // Where cells failed, there may be nothing to show, and the status is theirs.
            Err(error) if !is_whole => progress.note(&format!("--report: {error:#}")),
            written => written?,
        }
    }
    Ok(if is_whole { code } else { ExitCode::FAILURE })
}

/// Prints the tables of a case, and says whether its cells came out as they were packed.
fn run_case(
    file: &Path,
    args: &args::Run,
    stop: &AtomicBool,
    progress: &mut progress::Reporter,
) -> anyhow::Result<ExitCode> {
    let request = args.request();
    args.report.as_deref().map_or(Ok(()), check_page)?;
    let ran = lab::pack::run_case(file, (request.out.as_deref(), request.workers), stop, progress);
    progress.clear();
    let lab::pack::RanAgain { directory, repeated } = ran?;
    let causes = if args.causes { Causes::Yes } else { Causes::No };
    let code = print(&show::render(&directory, None, args.look.of(args.format, causes))?)?;
    for other in &repeated.others {
        progress.warning(other);
    }
    let cells = repeated.same + repeated.others.len();
    progress.note(&format!("{} of {cells} cells came out as they were packed, to the byte", repeated.same));
    progress.note(&format!("the result is in {}", directory.display()));
    if let Some(output) = &args.report {
        write_page(&args::of_run(&directory, output), stop, progress)?;
    }
    Ok(if repeated.others.is_empty() { code } else { ExitCode::FAILURE })
}

fn pack(args: &args::Pack) -> anyhow::Result<ExitCode> {
    let packed = lab::pack::pack(&args.result, &args.output)?;
    let (cells, size) = (packed.cells, packed.bytes.div_ceil(1000));
    let (output, mail) = (args.output.display(), packed.mail.display());
    writeln!(io::stderr(), "pagelab: {output} has {cells} cells in {size} KB; {mail} is a mail about it")?;
    Ok(ExitCode::SUCCESS)
}

fn why(args: &args::Why) -> anyhow::Result<ExitCode> {
    if let Some(wanted) = args.between() {
        let between = lab::show::between::between(&wanted)?;
        let parting = if args.parting { Some(parting(&wanted)?) } else { None };
        return print(&match args.format {
            WhyFormat::Text => {
                lab::show::between::text(&between) + &parting.as_ref().map(lab::why::parting::text).unwrap_or_default()
            }
            WhyFormat::Json => match &parting {
                None => lab::show::between::json(&between),
                Some(parting) => lab::why::parting::json(&between, parting),
            },
        });
    }
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    if args.inevitable {
        let mut progress = progress::Reporter::new(args::ProgressArg::default(), false);
        let found = lab::why::inevitable::inevitable(&args.wanted(), &stop, &mut progress);
        progress.clear();
        return print(&match args.format {
            WhyFormat::Text => lab::why::inevitable::text(&found?),
            WhyFormat::Json => lab::why::inevitable::json(&found?),
        });
    }
    if let Some(wanted) = args.nothing() {
        let answers = lab::why::nothing::nothing(&wanted, &stop)?;
        return print(&match args.format {
            WhyFormat::Text => lab::why::nothing::text(&answers),
            WhyFormat::Json => lab::why::nothing::json(&answers),
        });
    }
    let explained = lab::why::why(&args.wanted(), &stop)?;
    print(&match args.format {
        WhyFormat::Text => lab::why::text(&explained),
        WhyFormat::Json => lab::why::json(&explained),
    })
}

fn parting(wanted: &BetweenWanted) -> anyhow::Result<Parting> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut progress = progress::Reporter::new(args::ProgressArg::default(), false);
    let found = lab::why::parting::parting(wanted, &stop, &mut progress);
    progress.clear();
    Ok(found?)
}

fn fork(args: &args::Fork) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut progress = progress::Reporter::new(args::ProgressArg::default(), false);
    let forked = lab::fork::fork(&args.wanted(), &stop, &mut progress);
    progress.clear();
    print(&match args.format {
        WhyFormat::Text => lab::fork::text(&forked?),
        WhyFormat::Json => lab::fork::json(&forked?),
    })
}

fn compare(args: &args::Compare) -> anyhow::Result<ExitCode> {
    let compared = lab::show::compare::compare(&args.wanted())?;
    let code = print(&compared.text)?;
    let mut stderr = io::stderr();
    for line in &compared.failed {
        writeln!(stderr, "pagelab: {line}")?;
    }
    Ok(if compared.failed.is_empty() { code } else { ExitCode::from(CHANGED) })
}

fn export(args: &args::Export) -> anyhow::Result<ExitCode> {
    let (written, left_out, told): (Vec<PathBuf>, Vec<String>, Vec<String>) = match args.to {
        args::Tool::Mmtests if args.again => {
            return Err(UsageError::of_key("--again", "is for --to perfetto").into());
        }
        args::Tool::Mmtests => {
            let made = lab::mmtests::export(&args.result, args.seeds, &args.output)?;
            (made.runs, made.left_out, vec![format!("in each: {}", made.tests.join(", "))])
        }
        args::Tool::Perfetto => {
            let made = perfetto(args)?;
            let how = "https://ui.perfetto.dev opens it".to_owned();
            (vec![args.output.clone()], made.left_out, made.runs.into_iter().chain([how]).collect())
        }
    };
    let mut stderr = io::stderr();
    for line in &left_out {
        writeln!(stderr, "pagelab: left out: {line}")?;
    }
    let code = print(&written.iter().map(|path| format!("{}\n", path.display())).collect::<String>())?;
    for line in &told {
        writeln!(stderr, "pagelab: {line}")?;
    }
    Ok(code)
}

/// A trace, after simulated cells have run again if their timelines are wanted.
fn perfetto(args: &args::Export) -> anyhow::Result<lab::perfetto::Traced> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut progress = progress::Reporter::new(args::ProgressArg::default(), false);
    let again = args.again.then(|| lab::perfetto::Again { stop: &stop, progress: &mut progress });
    let made = lab::perfetto::export(&args.result, args.seeds, &args.output, again);
    progress.clear();
    Ok(made?)
}

/// Asked before the work that the page is of.
fn check_page(output: &Path) -> Result<(), UsageError> {
    report::check_whole(output).map_err(UsageError::from)
}

/// The page is there whole or not at all. Tells what is not on it, and where it is.
fn write_page(wanted: &PageWanted, stop: &AtomicBool, progress: &mut progress::Reporter) -> anyhow::Result<()> {
    let page = show::page(wanted, stop, progress);
    progress.clear();
    let page = page?;
    report::write_whole(&wanted.output, page.html.as_bytes()).map_err(UsageError::from)?;
    page.lacks.iter().for_each(|line| progress.note(line));
    progress.note(&format!("the page is in {}", wanted.output.display()));
    Ok(())
}

fn page(wanted: &PageWanted) -> anyhow::Result<ExitCode> {
    check_page(&wanted.output)?;
    let stop = Arc::new(AtomicBool::new(false));
    // A page without chains is made in a moment: a signal may end it anywhere.
    if wanted.why > 0 {
        lab::interrupt::set_on_signal(&stop)?;
    }
    let mut progress = progress::Reporter::new(args::ProgressArg::default(), false);
    write_page(wanted, &stop, &mut progress)?;
    Ok(ExitCode::SUCCESS)
}

fn ladder(args: &args::Ladder) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    // All of them are looked at before the first one runs.
    let wanted = args.wanted();
    let requests = wanted.iter().map(|wanted| wanted.checked(&args.metrics)).collect::<Result<Vec<_>, _>>()?;
    let mut code = ExitCode::SUCCESS;
    for request in requests {
        let Ran { directory, is_whole, is_empty } = evidence::run_request(&request, args.progress, &stop)?;
        if !is_whole {
            code = ExitCode::FAILURE;
        }
        if is_empty {
            continue;
        }
        if let Some(machine) = &request.machine {
            writeln!(io::stderr(), "pagelab: machine {machine}")?;
        }
        print(&lab::ladder::steps(&directory, &args.metrics, args.format.into())?)?;
    }
    Ok(code)
}

fn sweep(args: &args::Sweep) -> anyhow::Result<ExitCode> {
    let print_as = args.print();
    if let Some(directory) = &args.result {
        return print(&lab::sweep::judged(directory, &print_as)?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let request = args.wanted().request()?;
    lab::named::check(&print_as.metrics, &request)?;
    let Ran { directory, is_whole, is_empty } = evidence::run_request(&request, args.progress, &stop)?;
    if is_empty {
        return Ok(ExitCode::FAILURE);
    }
    let code = print(&lab::sweep::judged(&directory, &print_as)?)?;
    Ok(if is_whole { code } else { ExitCode::FAILURE })
}

/// No advice is a failure: nothing was found that is like the machine.
fn advise(args: &args::Advise) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut progress = progress::Reporter::new(args.progress, false);
    let advice = lab::advise::advise(&args.wanted(), &stop, &mut progress);
    progress.clear();
    let advice = advice?;
    let code = print(&match args.format {
        WhyFormat::Text => lab::advise::text(&advice),
        WhyFormat::Json => lab::advise::json(&advice),
    })?;
    Ok(if advice.is_given() { code } else { ExitCode::FAILURE })
}

fn calibrate(args: &args::Calibrate) -> anyhow::Result<ExitCode> {
    calibrate::check_output(&args.output, args.force)?;
    let stop = Arc::new(AtomicBool::new(false));
    lab::interrupt::set_on_signal(&stop)?;
    let mut progress = progress::Terminal::new(false);
    let calibrated = match args.guest() {
        None => calibrate::calibrate(&args.name, args.seconds, &stop, &mut progress),
        Some(wanted) => calibrate::calibrate_guest(&wanted, &args.name, args.seconds, &stop, &mut progress),
    };
    progress.clear();
    let calibrated = match calibrated {
        Err(RunError::InterruptedEarly) => {
            writeln!(io::stderr(), "pagelab: interrupted; nothing is written")?;
            return Ok(ExitCode::from(INTERRUPTED));
        }
        calibrated => calibrated?,
    };
    let text = calibrated.machine.to_toml();
    report::write_whole(&args.output, text.as_bytes()).map_err(UsageError::from)?;
    let code = print(&calibrated.table())?;
    let mut stderr = io::stderr();
    for warning in calibrated.warnings() {
        writeln!(stderr, "pagelab: {warning}")?;
    }
    writeln!(stderr, "pagelab: the machine is in {}", args.output.display())?;
    Ok(code)
}

fn import(wanted: &args::Import) -> anyhow::Result<ExitCode> {
    if wanted.from.is_none() {
        put_back()?;
    }
    let imported = lab::import::machine_file(wanted.from.as_deref(), &wanted.name, wanted.kernel.as_deref())?;
    let mut stderr = io::stderr();
    for note in &imported.notes {
        writeln!(stderr, "pagelab: {note}")?;
    }
    match &wanted.output {
        None => print(&imported.text),
        Some(path) => {
            report::write_whole(path, imported.text.as_bytes()).map_err(UsageError::from)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn man(args: &args::Man) -> anyhow::Result<ExitCode> {
    let pages = shell::pages()?;
    let Some(folder) = &args.output else {
        let found = pages.iter().find(|page| page.words == args.command);
        let page = found.ok_or_else(|| {
            let known: Vec<_> =
                pages.iter().map(|page| page.words.join(" ")).filter(|words| !words.is_empty()).collect();
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            UsageError::new(lab::source::unknown("command", &args.command.join(" "), &known))
        })?;
        return print(&String::from_utf8_lossy(&page.text));
    };
    let mistake = |error: io::Error| UsageError::in_file(folder.display(), error);
    let is_new = !folder.exists();
    std::fs::create_dir_all(folder).map_err(mistake)?;
    let paths: Vec<_> = pages.iter().map(|page| folder.join(&page.file)).collect();
    let files: Vec<_> = paths.iter().map(PathBuf::as_path).zip(pages.iter().map(|page| page.text.as_slice())).collect();
    let written = report::write_all_whole(&files);
    if written.is_err() && is_new {
        let _ = std::fs::remove_dir(folder);
    }
    written.map_err(UsageError::from)?;
    writeln!(io::stderr(), "pagelab: {} pages are in {}", pages.len(), folder.display())?;
    Ok(ExitCode::SUCCESS)
}

fn make_state(args: &args::Make) -> anyhow::Result<ExitCode> {
    match (&args.recipe, &args.output) {
        (Some(name), output) => make_by_recipe(name, args, output.as_deref()),
        (None, Some(output)) => record_state(output),
        (None, None) => unreachable!("clap asks for one of them"),
    }
}

/// Puts back settings of this machine before it is looked at, where a run that was killed has left them changed.
fn put_back() -> io::Result<()> {
    linux::journal::put_back().iter().try_for_each(|line| writeln!(io::stderr(), "pagelab: {line}"))
}

fn record_state(output: &Path) -> anyhow::Result<ExitCode> {
    put_back()?;
    let state = lab::state::State::live().map_err(UsageError::new)?;
    report::write_whole(output, &state.to_bytes()).map_err(UsageError::from)?;
    let mut stderr = io::stderr();
    if !state.stood_still {
        writeln!(stderr, "pagelab: memory moved while it was read; free blocks are not all as the kernel counts them")?;
    }
    writeln!(stderr, "pagelab: the state is in {}, {}", output.display(), state.hash())?;
    Ok(ExitCode::SUCCESS)
}

/// One after the other, each printed when it is there.
fn make_by_recipe(name: &str, args: &args::Make, output: Option<&Path>) -> anyhow::Result<ExitCode> {
    let recipe = lab::state::recipe(name, args.unmovable, args.blocks);
    let recipe = recipe.map_err(|problem| UsageError::new(format!("state make: {problem}")))?;
    let machine = lab::machine::Machine::load(&args.machine, &linux::setting::names())?;
    let variants = args.variant.iter().map(|name| lab::variant::load(name));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    let mut start = RecipeStart { recipe, file: None, made: Vec::new() };
    for (variant, seed) in variants.iter().flat_map(|variant| args.seeds.all().map(move |seed| (variant, seed))) {
        let found = lab::state::make(&start.recipe, &machine, variant, seed)?;
        print(&found.text(&start.recipe))?;
        start.made.push(found.made);
    }
    if let Some(output) = output {
        let mut seeds = args.seeds.all();
        let first = seeds.next().unwrap_or(1);
        let command = suggest::state_make(StateMake {
            recipe: &start.recipe,
            machine: &args.machine,
            variants: &args.variant,
            seeds: (first, seeds.last().unwrap_or(first)),
            output,
        });
        report::write_whole(output, start.to_toml(&command).as_bytes()).map_err(UsageError::from)?;
        writeln!(io::stderr(), "pagelab: the recipe is in {}", output.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to stdout; a reader that closed the pipe early (`| head`) is content, not an error.
fn print(text: &str) -> anyhow::Result<ExitCode> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(anyhow::anyhow!("cannot print: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
