//! An experiment as data: a workload, its parameters' values, and where it runs. Files: `experiments/NAME.toml`.

use report::Layout;
use workloads::{ParamError, Workload, WorkloadInfo, service::Service};

use crate::{
    service,
    source::{self, Kind, OneOrMore, Source, TableReader, unknown},
    usage::UsageError,
    workload::{self, Offered},
};

const KEYS: &[&str] = &[
    "about", "serves", "workload", "targets", "machine", "kernel", "state", "settings", "params", "layout", "column",
    "cost",
];
const COLUMN_KEYS: &[&str] = &["kernel", "title", "variant", "machine", "tables", "settings", "params"];
const LAYOUTS: &[&str] = &["head", "2015", "will-it-scale", "cases"];

/// The line above the table `[cost]`, which a command writes at the end of an experiment's file.
pub const COST_HEAD: &str = "# By `cargo xtask costs`.\n";
const COST_KEYS: &[&str] = &["cpu_ms", "processor"];

/// The machine of a service that names none.
const SERVICE_MACHINE: &str = "one-node-8g";
/// The kernel of guests that run it.
const SERVICE_KERNEL: &str = "6.1";

/// All memory is free.
pub const FRESH: &str = "fresh";
/// Every frame is as the kernel had it on which the same cell ran.
pub const KERNEL: &str = "kernel";

/// Where an experiment can run.
pub const TARGETS: &[&str] = &["host", "vm", "sim"];

/// A grid of runs of one workload.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The name of its file.
    pub name: String,
    /// One line on what it asks.
    pub about: String,
    /// What it runs.
    pub workload: &'static Offered,
    /// Where it runs: some of [`TARGETS`].
    pub targets: Vec<String>,
    /// The machine of target vm: a name or path.
    pub machine: String,
    /// The kernel of target vm.
    pub kernel: String,
    /// Where memory stands when a simulated workload starts: [`FRESH`], [`KERNEL`], or the path of a state file.
    pub state: String,
    /// Parameters with at least one value each, in the file's order. Those not given take the workload's defaults.
    pub params: Vec<(String, Vec<String>)>,
    /// Kernel settings with at least one value each, in the file's order: what `--set` says where the user does not. A host
    /// is left as it is.
    pub settings: Vec<(String, Vec<String>)>,
    /// How its tables are laid out.
    pub layout: Layout,
    /// The CPU time of one seed on sim, where it was measured.
    pub cost: Option<Cost>,
    /// The columns of target sim, where it is not left to the user which kernels are compared.
    pub columns: Vec<SimColumn>,
}

/// The CPU time of an experiment as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Milliseconds of CPU time of one seed on sim, above 0.
    pub cpu_ms: u64,
    /// The processor that took them, as it calls itself.
    pub processor: String,
}

/// A column of target sim that an experiment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimColumn {
    /// What results call it.
    pub kernel: String,
    /// What short tables call it, in a few words: `with patches 1-4`. Nothing else depends on it.
    pub title: Option<String>,
    /// Name or path of its variant.
    pub variant: String,
    /// Name or path of its machine, where it is not the experiment's.
    pub machine: Option<String>,
    /// The set of tables that it belongs to, where there are several.
    pub tables: Option<String>,
    /// Kernel settings of it alone.
    pub settings: Vec<(String, String)>,
    /// Parameters of this line of the grid alone, one value each; they override the experiment's parameters.
    pub params: Vec<(String, Vec<String>)>,
}

impl Experiment {
    /// The experiment of a name or path.
    pub fn load(name_or_path: &str) -> Result<Self, UsageError> {
        match source::lookup(Kind::Experiment, name_or_path) {
            // The name of a service, which is a workload; that of an experiment goes first.
            Err(_) if source::names(Kind::Workload).iter().any(|name| name == name_or_path) => {
                Self::from_source(&source::lookup(Kind::Workload, name_or_path)?)
            }
            found => Self::from_source(&found?),
        }
    }

    /// Reads and validates an experiment file, parameters and their values included.
    pub fn from_source(source: &Source) -> Result<Self, UsageError> {
        let document = source.parse()?;
        if service::is_service(&document.root()) {
            return of_service(source, &document.root());
        }
        let root = document.root().only("key", KEYS)?;
        let name: String = root.required("workload")?;
        let workload = workload::find(&name).map_err(|problem| root.error("workload", problem))?;
        // Whoever lists experiments reads it; here it only has to be right.
        root.optional::<String>(source::SERVES)?;
        Ok(Self {
            name: source.name().to_owned(),
            about: root.required("about")?,
            workload,
            targets: targets(&root)?,
            machine: machine(&root)?,
            kernel: root.required("kernel")?,
            state: root.optional("state")?.unwrap_or_else(|| FRESH.to_owned()),
            settings: of_settings(&root)?,
            params: params(&root, workload)?,
            layout: layout(&root)?,
            cost: cost(&root)?,
            columns: columns(&root, workload)?,
        })
    }

    /// Names of the programs that its cells run, as it stands.
    pub fn programs(&self) -> Vec<&'static str> {
        let chosen = self.workload.chosen(&self.params).expect("it was checked when it was read");
        chosen.iter().map(|program| program.name).collect()
    }
}

/// The experiment that runs a service, in the simulator unless somebody names another target.
fn of_service(source: &Source, root: &TableReader<'_>) -> Result<Experiment, UsageError> {
    let service = service::read(source.name(), root)?;
    let (name, value) = service.to_param();
    Ok(Experiment {
        name: source.name().to_owned(),
        about: root.required("about")?,
        workload: workload::find("service").map_err(UsageError::new)?,
        targets: vec!["sim".to_owned()],
        machine: root.optional("machine")?.unwrap_or_else(|| SERVICE_MACHINE.to_owned()),
        kernel: root.optional("kernel")?.unwrap_or_else(|| SERVICE_KERNEL.to_owned()),
        state: root.optional("state")?.unwrap_or_else(|| FRESH.to_owned()),
        params: vec![(name, vec![value])],
        settings: of_settings(root)?,
        layout: Layout::Head,
        cost: None,
        columns: Vec::new(),
    })
}

/// The service of an experiment, where it is one.
pub(crate) fn service_of(experiment: &Experiment) -> Option<Service> {
    let (_, values) = experiment.params.iter().find(|(name, _)| name == "service")?;
    serde_json::from_str(values.first()?).ok()
}

/// Every combination of the parameters' values, the last parameter changing fastest.
pub(crate) fn combinations(params: &[(String, Vec<String>)]) -> Vec<Vec<(String, String)>> {
    let mut grid = vec![Vec::new()];
    for (name, values) in params {
        let with = |cell: &Vec<(String, String)>, value: &String| {
            let mut cell = cell.clone();
            cell.push((name.clone(), value.clone()));
            cell
        };
        grid = grid.iter().flat_map(|cell| values.iter().map(move |value| with(cell, value))).collect();
    }
    grid
}

fn targets(root: &TableReader<'_>) -> Result<Vec<String>, UsageError> {
    let OneOrMore(targets) = root.required("targets")?;
    match targets.iter().find(|target| !TARGETS.contains(&target.as_str())) {
        None => Ok(targets),
        Some(target) => Err(root.error("targets", unknown("target", target, TARGETS))),
    }
}

fn layout(root: &TableReader<'_>) -> Result<Layout, UsageError> {
    match root.optional::<String>("layout")?.as_deref() {
        None | Some("head") => Ok(Layout::Head),
        Some("2015") => Ok(Layout::Classic),
        Some("will-it-scale") => Ok(Layout::WillItScale),
        Some("cases") => Ok(Layout::Cases),
        Some(other) => Err(root.error("layout", unknown("layout", other, LAYOUTS))),
    }
}

fn cost(root: &TableReader<'_>) -> Result<Option<Cost>, UsageError> {
    let Some(table) = root.table("cost")? else { return Ok(None) };
    let table = table.only("key", COST_KEYS)?;
    let cpu_ms = table.required("cpu_ms")?;
    if cpu_ms == 0 {
        return Err(table.error("cpu_ms", "expected milliseconds above 0, found 0"));
    }
    Ok(Some(Cost { cpu_ms, processor: table.required("processor")? }))
}

/// Their variants are read when they are used, like machines; settings have to be right here.
fn columns(root: &TableReader<'_>, workload: &Offered) -> Result<Vec<SimColumn>, UsageError> {
    let mut columns: Vec<SimColumn> = Vec::new();
    for table in root.tables("column")? {
        let table = table.only("key", COLUMN_KEYS)?;
        let kernel: String = table.required("kernel")?;
        let tables: Option<String> = table.optional("tables")?;
        if columns.iter().any(|known| known.kernel == kernel && known.tables == tables) {
            return Err(table.error("kernel", format!("there is another column {kernel:?} already")));
        }
        let settings = of_settings(&table)?;
        if let Some((name, _)) = settings.iter().find(|(_, values)| values.len() > 1) {
            return Err(table.error("settings", format!("a column takes one value of {name}")));
        }
        let settings =
            settings.into_iter().filter_map(|(name, values)| Some((name, values.into_iter().next()?))).collect();
        let machine = if table.optional::<String>("machine")?.is_some() { Some(machine(&table)?) } else { None };
        let params = params(&table, workload)?;
        if let Some((name, _)) = params.iter().find(|(_, values)| values.len() > 1) {
            return Err(table.error("params", format!("a column takes one value of {name}")));
        }
        columns.push(SimColumn {
            kernel,
            title: table.optional("title")?,
            variant: table.required("variant")?,
            machine,
            tables,
            settings,
            params,
        });
    }
    Ok(columns)
}

/// Settings below a table, each with at least one value.
fn of_settings(of: &TableReader<'_>) -> Result<Vec<(String, Vec<String>)>, UsageError> {
    let Some(table) = of.table("settings")? else { return Ok(Vec::new()) };
    let table = table.only("setting", &linux::setting::names())?;
    let read = |name: &str| {
        let OneOrMore(values) = table.required(name)?;
        let check = |value: &String| linux::setting::check_form(name, value);
        values.iter().try_for_each(check).map_err(|problem| table.error(name, problem))?;
        Ok((name.to_owned(), values))
    };
    table.keys().into_iter().map(read).collect()
}

/// The machine's own file is validated when it is loaded; that it exists is this file's business.
fn machine(root: &TableReader<'_>) -> Result<String, UsageError> {
    let machine: String = root.required("machine")?;
    match source::lookup(Kind::Machine, &machine) {
        Ok(_) => Ok(machine),
        Err(UsageError { file: Some(file), message, .. }) => Err(root.error("machine", format!("{file} {message}"))),
        Err(UsageError { message, .. }) => Err(root.error("machine", message)),
    }
}

fn params(root: &TableReader<'_>, workload: &Offered) -> Result<Vec<(String, Vec<String>)>, UsageError> {
    let Some(table) = root.table("params")? else { return Ok(Vec::new()) };
    let table = table.only("parameter", &workload.param_names())?;
    let mut params = Vec::new();
    for name in table.keys() {
        let OneOrMore(values) = table.required(name)?;
        params.push((name.to_owned(), values));
    }
    let chosen = workload.chosen(&params).map_err(|bad| table.error(bad.param.name, bad.to_string()))?;
    for (name, values) in params.iter().filter(|(name, _)| !workload.chooses(name)) {
        let mut programs = chosen.iter().filter(|program| workload::has(program, name)).peekable();
        if let (None, Some(only)) = (programs.peek(), workload.only(name)) {
            return Err(table.error(name, format!("is there only with {only}")));
        }
        programs.try_for_each(|program| check_values(&table, program, name, values))?;
    }
    Ok(params)
}

fn check_values(
    table: &TableReader<'_>,
    program: &WorkloadInfo,
    name: &str,
    values: &[String],
) -> Result<(), UsageError> {
    for value in values {
        Workload::parse(program.name, [(name, value.as_str())]).map_err(|error| match error {
            ParamError::BadValue { expects, found, .. } => {
                table.error(name, format!("expected {expects}, found {found:?}"))
            }
            error => table.error(name, error.to_string()),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"about = "a test"
workload = "fault-storm"
targets = ["host", "vm"]
machine = "two-node-2g"
kernel = "6.1"
[params]
page = ["base", "huge"]
iterations = 8
model = ["threads", "processes"]
"#;

    fn read(text: &str) -> Result<Experiment, UsageError> {
        Experiment::from_source(&Source::from_text("experiments/x.toml", text))
    }

    #[test]
    fn the_grid_is_the_product_of_the_values() {
        let experiment = read(GOOD).unwrap();
        assert_eq!((experiment.name.as_str(), experiment.about.as_str()), ("x", "a test"));
        let names: Vec<_> = experiment.params.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["page", "iterations", "model"], "in the order of the file");
        let grid: Vec<_> = combinations(&experiment.params)
            .iter()
            .map(|cell| cell.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(grid, ["base 8 threads", "base 8 processes", "huge 8 threads", "huge 8 processes"]);
        assert_eq!(combinations(&[]), [vec![]], "defaults are one cell");
    }

    #[test]
    fn every_mistake_is_one_message() {
        let names = source::names(Kind::Machine).join(", ");
        let machines = format!("(valid machines: {names})");
        let machine = format!("4: machine: unknown machine \"laptop\" {machines}");
        let near = "4: machine: unknown machine \"two-node-2\"; did you mean \"two-node-2g\"?";
        let cases: &[(&str, &str, &str)] = &[
            ("about = \"a test\"\n", "", "1: about: missing; expected a string"),
            (
                "kernel",
                "kernal",
                "5: unknown key \"kernal\"; did you mean \"kernel\"? \
                 (valid keys: about, serves, workload, targets, machine, kernel, state, settings, params, layout, column, cost)",
            ),
            (
                "fault-storm",
                "fault-strom",
                "2: workload: unknown workload \"fault-strom\"; did you mean \"fault-storm\"?",
            ),
            (
                "\"vm\"",
                "\"wm\"",
                "3: targets: unknown target \"wm\"; did you mean \"vm\"? (valid targets: host, vm, sim)",
            ),
            ("\"vm\"", "\"host\"", "3: targets: \"host\" is listed twice"),
            ("[\"host\", \"vm\"]", "[]", "3: targets: the list is empty"),
            ("two-node-2g", "laptop", &machine),
            ("two-node-2g", "two-node-2", near),
            (
                "two-node-2g",
                "no/such.toml",
                "4: machine: no/such.toml cannot be read: No such file or directory (os error 2)",
            ),
            (
                "page",
                "pages",
                "7: params: unknown parameter \"pages\"; did you mean \"page\"? \
                 (valid parameters: backing, page, model, tasks, iterations, warmup, size, duration, policy, drop_caches)",
            ),
            ("\"huge\"", "\"large\"", "7: params.page: expected \"base\" or \"huge\", found \"large\""),
            ("\"huge\"", "\"base\"", "7: params.page: \"base\" is listed twice"),
            ("iterations = 8", "iterations = []", "8: params.iterations: the list is empty"),
            (
                "iterations = 8",
                "iterations = {}",
                "8: params.iterations: expected a string, number or boolean, or a list of them, found a table",
            ),
            (
                "iterations = 8",
                "iterations = 0",
                "8: params.iterations: expected a whole number from 1 to 1000000, found \"0\"",
            ),
        ];
        for (from, to, expected) in cases {
            assert!(GOOD.contains(from), "{from}");
            let error = read(&GOOD.replacen(from, to, 1)).expect_err(to).to_string();
            assert_eq!(error, format!("experiments/x.toml:{expected}"), "{from} -> {to}");
        }
    }

    #[test]
    fn the_built_in_fault_storm_has_four_cells() {
        let experiment = Experiment::load("fault-storm").unwrap();
        assert_eq!(experiment.programs(), ["fault-storm"]);
        assert_eq!(experiment.targets, TARGETS);
        assert_eq!((experiment.machine.as_str(), experiment.kernel.as_str()), ("two-node-2g", "6.1"));
        let cells = combinations(&experiment.params);
        assert_eq!(cells.len(), 4);
        let params = [("page", "base"), ("model", "threads"), ("iterations", "8"), ("size", "128MiB")];
        assert_eq!(cells[0], params.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// Every policy is in each set of tables, but for what one machine alone can be asked.
    #[test]
    fn the_policies_of_2018_are_in_all_tables() {
        let experiment = Experiment::load("thp-locality").unwrap();
        let of = |tables: &str| {
            let columns = experiment.columns.iter().filter(|column| column.tables.as_deref() == Some(tables));
            columns.map(|column| column.variant.as_str()).collect::<Vec<_>>()
        };
        let all = of("vfio-pinned-vm-map");
        assert_eq!((all[0], all.len()), ("v4.18", 12));
        assert_eq!((of("short-regions"), of("preferred-node")), (all.clone(), all.clone()));
        assert_eq!(
            of("rientjes-haswell"),
            [all.clone(), vec!["v4.18"]].concat(),
            "and how long compaction is deferred"
        );
        for variant in all {
            crate::variant::load(variant).unwrap();
        }
    }

    #[test]
    fn a_column_may_have_its_own_machine_and_parameters() {
        let text = |column: &str| format!("{GOOD}\n[[column]]\nkernel = 'a'\nvariant = 'v6.1'\n{column}\n");
        let column = |text: String| read(&text).map(|experiment| experiment.columns[0].clone());
        let own = column(text("machine = 'one-node-512m'\nparams = { iterations = 4 }")).unwrap();
        assert_eq!(own.machine.as_deref(), Some("one-node-512m"));
        assert_eq!(own.params, [("iterations".to_owned(), vec!["4".to_owned()])]);
        let message = |added: &str| column(text(added)).unwrap_err().to_string();
        assert!(message("machine = 'one-node-512'").contains("did you mean \"one-node-512m\"?"));
        assert!(message("params = { iterations = [4, 8] }").contains("a column takes one value of iterations"));
        assert!(message("params = { iteration = 4 }").contains("did you mean \"iterations\"?"));
        let again = |tables: &str| {
            text(&format!("tables = 'x'\n[[column]]\nkernel = 'a'\nvariant = 'v6.1'\ntables = '{tables}'"))
        };
        assert!(column(again("y")).is_ok(), "the same kernel in other tables");
        assert!(column(again("x")).unwrap_err().to_string().contains("there is another column \"a\" already"));
    }
}
