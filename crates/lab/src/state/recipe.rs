//! States by recipe: what is done before a workload starts, by name or as a small file, and what came of it.
//!
//! A recipe is no memory: whoever uses it does it again, with the rules, the machine and the seed of the cell. What `pagelab
//! state make` finds is kept in the cache by the hash of all that it follows from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use report::{
    seal::{Seal, seal, verify},
    write_whole,
};
use rules::variant::Named;
use serde::{Deserialize, Serialize};
use units::{BlockCensus, Bytes, Errno};
use workloads::recipe::{RECIPES, Recipe, RecipeError, Share};

use super::picture::Picture;
use crate::{
    machine::Machine,
    provenance,
    source::{Source, quoted, unknown},
    usage::UsageError,
    variant::Recorded,
};

/// The last part of a recipe file's name.
pub(super) const SUFFIX: &str = "toml";
const KEYS: &[&str] = &["recipe", "unmovable", "blocks", "made"];
const MADE_KEYS: &[&str] = &["machine", "variant", "seed", "checksum"];
/// Parameters of a recipe on the command line, behind its name.
const PARAMS: &[&str] = &["unmovable", "blocks"];

/// A recipe that starts a run, with the checksums that its file names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipeStart {
    /// The recipe.
    pub recipe: Recipe,
    /// The recipe's file, if it is from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Results of the recipe elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<Made>,
}

/// A memory that a recipe led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The machine's name.
    pub machine: String,
    /// The variant's name.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// The checksum that tells this memory from any other.
    pub checksum: String,
}

/// Everything that `pagelab state make --recipe` prints of one memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The machine, variant and seed that the memory was made with, and its checksum.
    pub made: Made,
    /// How scattered unmovable memory is.
    pub census: BlockCensus,
    /// /proc/buddyinfo.
    pub buddyinfo: String,
    /// /proc/pagetypeinfo.
    pub pagetypeinfo: String,
}

impl RecipeStart {
    /// The recipe named by the words after `--state`, if they name one: `metadata+anon`, `metadata+anon,unmovable=7%,blocks=34%`.
    pub(super) fn from_words(words: &str) -> Option<Result<Self, String>> {
        let mut parts = words.split(',');
        let name = parts.next().filter(|name| RECIPES.iter().any(|known| known.name == *name))?;
        let (mut unmovable, mut blocks) = (Recipe::UNMOVABLE, Recipe::BLOCKS);
        let mut take = |part: &str| {
            let (param, value) = part.split_once('=').unwrap_or((part, ""));
            let share = || value.parse::<Share>().map_err(|problem| format!("{param}: {problem}"));
            match param {
                "unmovable" => unmovable = share()?,
                "blocks" => blocks = share()?,
                _ => return Err(unknown("parameter of a recipe", param, PARAMS)),
            }
            Ok(())
        };
        let made = parts.try_for_each(&mut take).and_then(|()| recipe(name, unmovable, blocks));
        Some(made.map(|recipe| Self { recipe, file: None, made: Vec::new() }))
    }

    /// A recipe file.
    pub(super) fn from_source(path: &Path, source: &Source) -> Result<Self, UsageError> {
        let document = source.parse()?;
        let root = document.root().only("key", KEYS)?;
        let share = |key: &str, default: Share| match root.optional::<String>(key)? {
            None => Ok(default),
            Some(text) => text.parse().map_err(|problem: String| root.error(key, problem)),
        };
        let name: String = root.required("recipe")?;
        let recipe = recipe(&name, share("unmovable", Recipe::UNMOVABLE)?, share("blocks", Recipe::BLOCKS)?);
        let recipe = recipe.map_err(|problem| root.error("recipe", problem))?;
        let made = root.tables("made")?.into_iter().map(|table| {
            let table = table.only("key", MADE_KEYS)?;
            Ok(Made {
                machine: table.required("machine")?,
                variant: table.required("variant")?,
                seed: table.required("seed")?,
                checksum: table.required("checksum")?,
            })
        });
        Ok(Self { recipe, file: Some(path.to_owned()), made: made.collect::<Result<_, UsageError>>()? })
    }

    /// The recipe as a file, with the command that makes it.
    pub fn to_toml(&self, command: &str) -> String {
        let mut text = format!(
            "# A state of memory by recipe, for --state of run and sweep. This makes it:\n# {}\n\
             recipe = \"{}\"\nunmovable = \"{}\"\nblocks = \"{}\"\n",
            command.replace('\n', "\n# "),
            self.recipe.name(),
            self.recipe.unmovable(),
            self.recipe.blocks()
        );
        for Made { machine, variant, seed, checksum } in &self.made {
            let [machine, variant, checksum] = [machine, variant, checksum].map(|text| quoted(text));
            text += &format!(
                "\n[[made]]\nmachine = {machine}\nvariant = {variant}\nseed = {seed}\nchecksum = {checksum}\n"
            );
        }
        text
    }

    /// The checksum that the file has for this machine, variant and seed, if it has one.
    pub(crate) fn expected(&self, machine: &str, variant: &str, seed: u64) -> Option<&str> {
        let is_it = |made: &&Made| made.machine == machine && made.variant == variant && made.seed == seed;
        self.made.iter().find(is_it).map(|made| made.checksum.as_str())
    }
}

/// A recipe, with what it is to lead to.
pub fn recipe(name: &str, unmovable: Share, blocks: Share) -> Result<Recipe, String> {
    let names: Vec<_> = RECIPES.iter().map(|known| known.name).collect();
    if !names.contains(&name) {
        return Err(unknown("recipe", name, &names));
    }
    Recipe::new(name, unmovable, blocks)
}

/// The memory that a recipe may map: all of the machine's. That memory is free again before the workload.
pub(crate) fn room_for_state(machine: &Machine) -> Bytes {
    // Three times, as it maps more than it touches, and huge pages beside that.
    machine.memory() * 3
}

/// Follows a recipe on a machine with a kernel's rules, or takes what is in the cache of it.
pub fn make(recipe: &Recipe, machine: &Machine, variant: &Named, seed: u64) -> Result<Found, UsageError> {
    let cache = linux::kernel_image::cache_dir().ok().map(|cache| cache.join("states"));
    make_in(cache.as_deref(), recipe, machine, variant, seed)
}

fn make_in(
    cache: Option<&Path>,
    recipe: &Recipe,
    machine: &Machine,
    variant: &Named,
    seed: u64,
) -> Result<Found, UsageError> {
    // The file of a machine does not say its name, and that of a variant may have another one.
    let names = (&machine.name, &variant.name);
    let told = (provenance::PROGRAM_HASH, recipe, names, machine.to_toml(), Recorded::of(variant), seed);
    let of = blake3::hash(&serde_json::to_vec(&told).expect("it serialises")).to_hex().to_string();
    let file = cache.map(|folder| folder.join(format!("{of}.json")));
    if let Some(found) = file.as_ref().and_then(|file| kept(file, &of)) {
        return Ok(found);
    }
    let found = follow(recipe, machine, variant, seed).map_err(|problem| {
        UsageError::new(format!("state {recipe}: machine {}, {}, seed {seed}: {problem}", machine.name, variant.name))
    })?;
    // Without a cache it is made again the next time.
    if let (Some(folder), Some(file)) = (cache, &file) {
        let _ = fs::create_dir_all(folder);
        let kept = Kept { of, found };
        let _ = write_whole(file, &seal(serde_json::to_vec(&kept).expect("it serialises")));
        return Ok(kept.found);
    }
    Ok(found)
}

/// A file of the cache.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// The hash of all that the picture follows from, as in the file's name: a file may be copied to another one's.
    of: String,
    found: Found,
}

/// A picture of the cache, if it is as it was written, and of this machine, these rules and this seed: else it is made again.
fn kept(file: &Path, of: &str) -> Option<Found> {
    report::check_regular(file).ok()?;
    let bytes = fs::read(file).ok()?;
    let kept: Kept = (verify(&bytes) == Seal::Whole).then(|| serde_json::from_slice(&bytes).ok())??;
    (kept.of == of).then_some(kept.found)
}

fn follow(recipe: &Recipe, machine: &Machine, variant: &Named, seed: u64) -> Result<Found, String> {
    let config = crate::simulated::config(machine, &variant.rules, room_for_state(machine), seed)?;
    let no_entries =
        |name: &'static str, _| -> sim::EntryFuture { Box::pin(async move { Err(format!("no entry {name}")) }) };
    let wanted = recipe.clone();
    let main = async move |os: sim::Sim| {
        wanted.run(&os, seed).await?;
        Ok(os.look(Picture::of))
    };
    let (picture, _): (Result<Picture, RecipeError>, _) = sim::simulate(&config, no_entries, main);
    let Picture { buddyinfo, pagetypeinfo, census, checksum } = picture.map_err(|error| in_machine(&error, machine))?;
    let made = Made { machine: machine.name.clone(), variant: variant.name.clone(), seed, checksum };
    Ok(Found { made, census, buddyinfo, pagetypeinfo })
}

/// Why a recipe cannot be followed on a machine. It fills memory with anonymous pages, some of which have to go to swap.
fn in_machine(error: &RecipeError, machine: &Machine) -> String {
    let Machine { name, swap, .. } = machine;
    let memory = machine.memory();
    match error {
        RecipeError::Call(Errno::NOMEM) if *swap == Bytes(0) => format!(
            "memory ran out (ENOMEM): a recipe fills it, and machine {name} of {memory} has no swap; expected one with the key \
             swap, such as one-node-512m"
        ),
        RecipeError::Call(Errno::NOMEM) => {
            format!(
                "memory ran out (ENOMEM): a recipe fills it, and the {swap} of swap of machine {name} of {memory} are too few"
            )
        }
        error => error.to_string(),
    }
}

/// Why a cell among others cannot follow its recipe, in few words: its line of a table of 80 columns has more in it.
pub(crate) fn in_cell(error: &RecipeError, machine: &Machine) -> String {
    match error {
        RecipeError::Missed(recipe, census) => {
            format!("{} in {} ({recipe})", Share(census.unmovable_share()), Share(census.scattered_share()))
        }
        RecipeError::Call(_) => in_machine(error, machine),
    }
}

/// In words, how scattered unmovable memory is.
pub(crate) fn in_words(census: &BlockCensus) -> String {
    format!(
        "unmovable {} of the frames, in {} of the pageblocks ({} of {}); {} of them mixed; {} MiB free",
        Share(census.unmovable_share()),
        Share(census.scattered_share()),
        census.with_unmovable,
        census.blocks,
        census.mixed,
        units::Frames(census.free).bytes().as_mib()
    )
}

impl Found {
    /// For people.
    pub fn text(&self, recipe: &Recipe) -> String {
        let Made { machine, variant, seed, checksum } = &self.made;
        format!(
            "state {recipe}, {machine}, {variant}, seed {seed}\nchecksum {checksum}\n{}\n\n{}\n{}",
            in_words(&self.census),
            self.buddyinfo,
            self.pagetypeinfo
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_words_or_a_file() {
        let words = |words: &str| RecipeStart::from_words(words);
        let start = words("metadata+anon,blocks=20%,unmovable=5.5%").unwrap().unwrap();
        assert_eq!(start.recipe.to_string(), "metadata+anon 5.5% in 20%");
        assert_eq!(words("metadata+anon").unwrap().unwrap().recipe.to_string(), "metadata+anon 7% in 34%");
        assert_eq!(words("metadata"), None);
        let problem = |text: &str| words(text).unwrap().unwrap_err();
        assert!(problem("metadata+anon,block=20%").contains("did you mean \"blocks\"?"));
        assert!(problem("metadata+anon,blocks").starts_with("blocks: expected a part of memory"));
        assert!(problem("metadata+anon,blocks=2%").starts_with("blocks: 7% of the frames need"));
        let made = |seed| Made {
            machine: "m \"\\\u{1}".to_owned(),
            variant: "v6.1".to_owned(),
            seed,
            checksum: format!("{seed:064x}"),
        };
        let file = RecipeStart { file: Some("x.toml".into()), made: vec![made(1), made(2)], ..start };
        let read =
            RecipeStart::from_source(Path::new("x.toml"), &Source::from_text("x.toml", file.to_toml("page\nlab")))
                .unwrap();
        assert_eq!(read, file);
        assert_eq!(read.expected("m \"\\\u{1}", "v6.1", 2), Some(made(2).checksum.as_str()));
        assert_eq!(read.expected("m \"\\\u{1}", "v6.1", 3), None);
    }

    #[test]
    fn what_is_kept_is_of_its_machine_and_as_it_was_written() {
        let cache = tempfile::tempdir().unwrap();
        let recipe = recipe("metadata+anon", Recipe::UNMOVABLE, Share(1200)).unwrap();
        let machine = Machine::load("one-node-512m", &linux::setting::names()).unwrap();
        let variant = crate::variant::load("v6.1").unwrap();
        let make = |machine: &Machine| make_in(Some(cache.path()), &recipe, machine, &variant, 1).unwrap();
        let found = make(&machine);
        let file = fs::read_dir(cache.path()).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        let free = format!("\"free\":{}", found.census.free);
        for (from, to) in [(free.as_str(), "\"free\":99999999"), ("checksum", "chacksum")] {
            let at = text.rfind(from).expect(from);
            fs::write(&file, [&text[..at], to, &text[at + from.len()..]].concat()).unwrap();
            assert_eq!(make(&machine), found);
            assert_eq!(fs::read_to_string(&file).unwrap(), text, "mended");
        }
        // What is as it was written is taken, and not made.
        let other = Found { buddyinfo: "kept".to_owned(), ..found.clone() };
        let of = file.file_stem().unwrap().to_str().unwrap().to_owned();
        fs::write(&file, seal(serde_json::to_vec(&Kept { of, found: other.clone() }).unwrap())).unwrap();
        assert_eq!(make(&machine), other);
        let twin = Machine { name: "twin".to_owned(), ..machine.clone() };
        assert_eq!(make(&twin).made.machine, "twin");
        // A file of the cache under the name of another one is of another machine.
        let files = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
        let of_twin = files.into_iter().find(|path| *path != file).unwrap();
        fs::copy(&file, &of_twin).unwrap();
        assert_eq!(make(&twin).made.machine, "twin");
        assert_eq!(make(&machine), other);
    }

    #[test]
    fn mistakes_in_a_file_name_line_and_key() {
        let problem = |text: &str| {
            RecipeStart::from_source(Path::new("x.toml"), &Source::from_text("x.toml", text)).unwrap_err().to_string()
        };
        assert!(problem("recipe = \"metadata+anom\"").contains("did you mean \"metadata+anon\"?"));
        assert!(problem("unmovable = \"7%\"").contains("recipe: missing"));
        assert!(problem("recipe = \"metadata+anon\"\nblocks = \"7\"").starts_with("x.toml:2: blocks: expected a part"));
        assert!(problem("recipe = \"metadata+anon\"\nblock = \"7%\"").contains("did you mean \"blocks\"?"));
    }
}
