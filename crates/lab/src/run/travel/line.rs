//! A line out: all that a worker may be told by whoever hands it lines.
//!
//! A queue of a cluster writes to workers, so a line can only ask for a simulated cell. It names no path, no host and nothing to
//! change outside of the simulator; what [`CellOrder`] has beside that is for the private pipe between a run and its own workers.
//! Anything else on a line is refused by name.

use linux::{file::Ground, setting, tracing::Watch};
use report::{Key, Target, brief};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use units::Bytes;
use workloads::recipe::Recipe;

use crate::{
    machine::Machine,
    order::{CellOrder, Prefix, Simulated},
    plan::{Every, TIMEOUT_S_MAX},
    source::{Source, unknown},
    variant::Recorded,
    workload,
};

/// The version of lines out. 1 had fields with paths.
pub(super) const VERSION: u32 = 2;

/// A line out: the order for a worker elsewhere to run one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Travelling {
    /// [`VERSION`].
    pub(super) pagelab_cell: u32,
    /// Hash of the program's sources.
    pub(super) program: String,
    /// Seconds that the cell may take.
    pub(super) timeout_s: u64,
    /// The work.
    pub(super) order: Sent,
}

/// The work of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sent {
    /// Which cell it is.
    pub(super) key: Key,
    /// How much memory the workload may map.
    cap: Bytes,
    /// The simulation.
    simulated: Alone,
    /// How often it is sampled, if at all.
    sample: Option<Every>,
    /// How often the memory of the guest on its host is looked at, if at all.
    footprint: Option<Every>,
}

/// The simulation of a cell, without any file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Alone {
    /// The machine, as a machine file.
    machine: String,
    /// The kernel.
    variant: Recorded,
    /// The recipe that is followed before the workload.
    prefix: Option<Prefix>,
}

impl Sent {
    /// The part of an order that travels.
    ///
    /// # Errors
    /// The name of what does not.
    pub(super) fn of(order: CellOrder) -> Result<Self, String> {
        let CellOrder { key, cap, ground, watch, idle_window, simulated, trace, sample, map, footprint } = order;
        let Some(Simulated { machine, variant, state, prefix }) = simulated else {
            return Err("only simulated cells travel".to_owned());
        };
        if let Some(file) = state {
            return Err(format!(
                "state {} is a file of this machine, which a line does not carry; expected fresh or a recipe",
                file.display()
            ));
        }
        if trace.is_some() || map.is_some() {
            return Err("--trace and --map write files beside the result, which do not travel".to_owned());
        }
        assert!(!idle_window && ground == Ground::default() && watch == Watch::default(), "it is simulated");
        let footprint = footprint.map(Every::try_from).transpose()?;
        Ok(Self { key, cap, simulated: Alone { machine, variant, prefix }, sample, footprint })
    }

    /// The order for a worker process of this host.
    pub(super) fn into_order(self) -> CellOrder {
        let Self { key, cap, simulated: Alone { machine, variant, prefix }, sample, footprint } = self;
        CellOrder {
            key,
            cap,
            ground: Ground::default(),
            watch: Watch::default(),
            idle_window: false,
            simulated: Some(Simulated { machine, variant, state: None, prefix }),
            trace: None,
            sample,
            map: None,
            footprint: footprint.map(Every::time),
        }
    }

    /// Refuses a cell that cannot be simulated, before anything runs.
    fn check(&self) -> Result<(), String> {
        let Self { key, simulated, .. } = self;
        if key.target != Target::Sim {
            return Err(format!("order.key.target: expected sim, found {}", key.target));
        }
        let workload = workload::of_key(key).map_err(|problem| format!("order.key: {problem}"))?;
        workload::conditions(key).map_err(|problem| format!("order.key: {problem}"))?;
        if workload.case() != key.case {
            return Err(format!(
                "order.key.case: expected {:?}, found {}",
                workload.case(),
                brief(format_args!("{:?}", key.case))
            ));
        }
        let source = Source::from_text(format!("{}.toml", key.machine), simulated.machine.as_str());
        let machine = Machine::from_source(&source, &setting::names());
        machine.map_err(|error| format!("order.simulated.machine: {error}"))?;
        simulated.variant.rules().map_err(|problem| format!("order.simulated.variant: {problem}"))?;
        if let Some(Prefix { recipe, .. }) = &simulated.prefix {
            let checked = Recipe::new(recipe.name(), recipe.unmovable(), recipe.blocks());
            checked.map_err(|problem| format!("order.simulated.prefix: {problem}"))?;
        }
        Ok(())
    }
}

impl Travelling {
    /// The line's version and program; what else is on it depends on these.
    pub(super) fn program_of(line: &str) -> Result<String, String> {
        let mut fields = Fields::of(String::new(), parse(line)?)?;
        let version: u32 = fields.take("pagelab_cell")?;
        if version != VERSION {
            return Err(format!("it has version {version}, and this program reads {VERSION}"));
        }
        fields.take("program")
    }

    /// A line, whole.
    ///
    /// # Errors
    /// The name of a field that a line does not have, that lacks or that has a value that it cannot have.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let program = Self::program_of(line)?;
        let mut fields = Fields::of(String::new(), parse(line)?)?;
        let pagelab_cell = fields.take("pagelab_cell")?;
        let _: String = fields.take("program")?;
        let timeout_s = fields.take("timeout_s")?;
        if !(1..=TIMEOUT_S_MAX).contains(&timeout_s) {
            return Err(format!("timeout_s: expected 1 to {TIMEOUT_S_MAX}, found {timeout_s}"));
        }
        let mut order = fields.table("order")?;
        fields.end(&["pagelab_cell", "program", "timeout_s", "order"])?;
        let mut simulated = order.table("simulated")?;
        let alone = Alone {
            machine: simulated.take("machine")?,
            variant: simulated.take("variant")?,
            prefix: simulated.take("prefix")?,
        };
        simulated.end(&["machine", "variant", "prefix"])?;
        let sent = Sent {
            key: order.take("key")?,
            cap: order.take("cap")?,
            simulated: alone,
            sample: order.take("sample")?,
            footprint: order.take("footprint")?,
        };
        order.end(&["key", "cap", "simulated", "sample", "footprint"])?;
        if sent.key.program != program {
            return Err("order.key.program: expected the line's program".to_owned());
        }
        sent.check()?;
        Ok(Self { pagelab_cell, program, timeout_s, order: sent })
    }
}

fn parse(line: &str) -> Result<Value, String> {
    serde_json::from_str(line).map_err(brief)
}

/// Fields of a JSON object that are taken out one by one, until none may be left.
struct Fields {
    /// The object's place on the line, with a dot at its end.
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    fn of(path: String, value: Value) -> Result<Self, String> {
        match value {
            Value::Object(left) => Ok(Self { path, left }),
            _ => Err(format!("{}: expected an object", path.trim_end_matches('.'))),
        }
    }

    fn value(&mut self, name: &str) -> Result<(String, Value), String> {
        let place = format!("{}{name}", self.path);
        let value = self.left.remove(name).ok_or_else(|| format!("{place}: missing"))?;
        Ok((place, value))
    }

    fn table(&mut self, name: &str) -> Result<Self, String> {
        let (place, value) = self.value(name)?;
        Self::of(place + ".", value)
    }

    /// A value that says no more than what is made of it.
    fn take<T: DeserializeOwned + Serialize>(&mut self, name: &str) -> Result<T, String> {
        let (place, value) = self.value(name)?;
        let read: T = T::deserialize(&value).map_err(|error| format!("{place}: {}", brief(error)))?;
        let again = serde_json::to_value(&read).expect("it was read from such a value");
        match foreign(&place, &value, &again) {
            Some(at) => Err(format!("{}: nothing that a line carries", brief(at))),
            None => Ok(read),
        }
    }

    fn end(self, valid: &[&str]) -> Result<(), String> {
        match self.left.keys().next() {
            Some(name) => Err(unknown("field", &format!("{}{name}", self.path), valid)),
            None => Ok(()),
        }
    }
}

/// The first place where a value says more, or another thing, than what was made of it.
fn foreign(place: &str, value: &Value, again: &Value) -> Option<String> {
    match (value, again) {
        (Value::Object(value), Value::Object(again)) => value.iter().find_map(|(name, value)| {
            let place = format!("{place}.{name}");
            match again.get(name) {
                Some(again) => foreign(&place, value, again),
                None => Some(place),
            }
        }),
        (value, again) => (value != again).then(|| place.to_owned()),
    }
}

#[cfg(test)]
mod tests;
