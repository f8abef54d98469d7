//! apt as a plain program: a private state directory, the system's own mirrors and keyrings, and no root.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail};

/// One stanza of a deb822 `.sources` file, reduced to what a fetch of kernels needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Mirrors, as written.
    pub(crate) uris: Vec<String>,
    /// Suites of Debian, such as `bookworm-security`.
    pub(crate) suites: Vec<String>,
    /// Further fields to keep, such as `Signed-By`.
    pub(crate) options: Vec<(String, String)>,
}

/// Suites that have carried cloud kernels, for a version that the system's own suites lack.
const SUITES: [&str; 4] = ["bullseye", "bookworm", "bookworm-backports", "trixie"];
const SECURITY_SUITES: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];
/// What a suite of Debian may be called, before `-updates` and the like.
const DISTRIBUTIONS: [&str; 10] =
    ["bullseye", "bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable", "testing", "unstable"];
const POCKETS: [&str; 5] = ["updates", "security", "backports", "proposed-updates", "backports-sloppy"];
/// Debian's keyring of all releases, where its package puts it; a release's own keyring does not know the older ones.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Fields that keep their meaning outside the system's own configuration.
const KEPT_OPTIONS: [&str; 4] = ["Signed-By", "Trusted", "Check-Valid-Until", "Check-Date"];

impl Source {
    /// One mirror and suite, signed by Debian.
    pub(crate) fn new(uri: &str, suite: &str) -> Self {
        Self { uris: vec![uri.to_owned()], suites: vec![suite.to_owned()], options: signed_by_debian(Vec::new()) }
    }

    /// The same mirrors with the suites of other releases; security suites live on mirrors of their own.
    fn with_known_suites(&self) -> Self {
        let is_security = self.suites.iter().all(|suite| suite.ends_with("-security"));
        let suites: &[&str] = if is_security { &SECURITY_SUITES } else { &SUITES };
        Self {
            uris: self.uris.clone(),
            suites: suites.iter().map(ToString::to_string).collect(),
            options: signed_by_debian(self.options.clone()),
        }
    }

    fn to_stanza(&self) -> String {
        let mut stanza = format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: amd64\n",
            self.uris.join(" "),
            self.suites.join(" ")
        );
        for (key, value) in &self.options {
            let _ = writeln!(stanza, "{key}: {value}");
        }
        stanza
    }
}

/// The entries of this system's apt configuration that serve Debian's `main`.
pub(crate) fn system_sources() -> Result<Vec<Source>> {
    let config = Command::new("apt-config")
        .args(["shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"])
        .output()
        .context("apt-config")?;
    let config = String::from_utf8(config.stdout).context("apt-config")?;
    let place = |name: &str| {
        let line = config.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(|quoted| PathBuf::from(quoted.trim_matches('\'')))
    };
    let mut files: Vec<PathBuf> = place("LIST").into_iter().collect();
    if let Some(entries) = place("PARTS").and_then(|parts| fs::read_dir(parts).ok()) {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => sources.extend(parse_deb822(&text)),
            Some("list") => sources.extend(parse_list(&text)),
            _ => {}
        }
    }
    Ok(sources)
}

/// The mirrors of `sources`, each once, with every suite that has carried cloud kernels.
pub(crate) fn derived_sources(sources: &[Source]) -> Vec<Source> {
    let mut derived: Vec<Source> = Vec::new();
    for source in sources.iter().map(Source::with_known_suites) {
        if !derived.contains(&source) {
            derived.push(source);
        }
    }
    derived
}

fn parse_deb822(text: &str) -> Vec<Source> {
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).map(str::trim_end).collect();
    uncommented.split(|line| line.is_empty()).filter_map(parse_stanza).collect()
}

fn parse_stanza(lines: &[&str]) -> Option<Source> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            let (_, value) = fields.last_mut()?;
            let _ = write!(value, "\n{line}");
        } else {
            let (key, value) = line.split_once(':')?;
            fields.push((key.trim(), value.trim().to_owned()));
        }
    }
    let words = |key: &str| -> Vec<String> {
        let value = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        value.map(|(_, value)| value.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
    };
    if words("Enabled").first().is_some_and(|enabled| enabled == "no") || !words("Types").contains(&"deb".to_owned()) {
        return None;
    }
    let kept = |name: &str| KEPT_OPTIONS.iter().find(|known| known.eq_ignore_ascii_case(name));
    let options = fields.iter().filter_map(|(name, value)| Some((kept(name)?.to_string(), value.clone()))).collect();
    debian_source(words("URIs"), words("Suites"), &words("Components"), options)
}

fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_list_line).collect()
}

/// `deb [signed-by=KEYRING arch=amd64] URI SUITE COMPONENT...`
fn parse_list_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '[']))?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let options = options.split_whitespace().filter_map(|option| {
        let (key, value) = option.split_once('=')?;
        let known = KEPT_OPTIONS.iter().find(|known| known.eq_ignore_ascii_case(key))?;
        Some((known.to_string(), value.replace(',', " ")))
    });
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    debian_source(vec![uri], vec![suite], &words.collect::<Vec<_>>(), options.collect())
}

/// Keeps the suites that are Debian's; other vendors name theirs otherwise, or have no `main`.
fn debian_source(
    uris: Vec<String>,
    suites: Vec<String>,
    components: &[String],
    options: Vec<(String, String)>,
) -> Option<Source> {
    let suites: Vec<String> = suites.into_iter().filter(|suite| is_debian_suite(suite)).collect();
    let serves_main = components.iter().any(|component| component == "main");
    (serves_main && !suites.is_empty() && !uris.is_empty()).then_some(Source { uris, suites, options })
}

fn is_debian_suite(suite: &str) -> bool {
    let (distribution, pocket) = suite.split_once('-').unwrap_or((suite, "updates"));
    DISTRIBUTIONS.contains(&distribution) && POCKETS.contains(&pocket)
}

fn signed_by_debian(mut options: Vec<(String, String)>) -> Vec<(String, String)> {
    if Path::new(KEYRING).is_file() {
        options.retain(|(key, _)| key != "Signed-By");
        options.push(("Signed-By".to_owned(), KEYRING.to_owned()));
    }
    options
}

/// apt with its own lists and cache in one directory.
pub(crate) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Sets up apt in `dir`, which must be empty, with these sources and nothing else.
    pub(crate) fn new(dir: &Path, sources: &[Source]) -> Result<Self> {
        for part in ["state/lists/partial", "cache/archives/partial", "sources", "nothing", "packages"] {
            fs::create_dir_all(dir.join(part)).with_context(|| dir.join(part).display().to_string())?;
        }
        let stanzas: Vec<String> = sources.iter().map(Source::to_stanza).collect();
        let text = stanzas.join("\n");
        for (name, text) in
            [("sources/debian.sources", text), ("status", String::new()), ("apt.conf", apt_configuration(dir)?)]
        {
            fs::write(dir.join(name), text).with_context(|| dir.join(name).display().to_string())?;
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// Fetches the package lists. An error names what apt complained about; some lists may have arrived all the same.
    pub(crate) fn update(&self) -> Result<()> {
        succeed("apt-get update", &self.command("apt-get").args(["-q", "update"]).output()?)
    }

    /// Names of packages that match a regular expression.
    pub(crate) fn search(&self, pattern: &str) -> Result<Vec<String>> {
        let output = self.command("apt-cache").args(["search", "--names-only", pattern]).output()?;
        succeed("apt-cache search", &output)?;
        let listing = String::from_utf8(output.stdout).context("apt-cache search")?;
        Ok(listing.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    /// Downloads one package and returns its file.
    pub(crate) fn download(&self, package: &str) -> Result<PathBuf> {
        let packages = self.dir.join("packages");
        let output = self.command("apt-get").args(["-q", "download", package]).current_dir(&packages).output()?;
        succeed("apt-get download", &output)?;
        let mut files = fs::read_dir(&packages)?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(|name| name.strip_prefix(package)).is_some_and(|rest| rest.starts_with('_'))
        };
        files.find(is_ours).with_context(|| format!("apt-get download left no file of {package}"))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").arg("-c").arg(self.dir.join("apt.conf"));
        command
    }
}

/// Settings on top of the system's own (which hold its proxies): read last, by `-c`.
fn apt_configuration(dir: &Path) -> Result<String> {
    let dir = dir.to_str().filter(|dir| !dir.contains('"')).context("the cache's path has no UTF-8, or a quote")?;
    let mut text = String::new();
    // The system's hooks after an update are not ours to run; appstream's lists are large and not for us.
    for cleared in ["APT::Update", "Acquire::IndexTargets::deb::DEP-11", "DPkg"] {
        let _ = writeln!(text, "#clear {cleared};");
    }
    for (key, place) in [
        ("Dir::State", "state"),
        ("Dir::State::lists", "state/lists"),
        ("Dir::State::status", "status"),
        ("Dir::Cache", "cache"),
        ("Dir::Cache::archives", "cache/archives"),
        ("Dir::Etc::sourcelist", "nothing/sources.list"),
        ("Dir::Etc::sourceparts", "sources"),
        ("Dir::Etc::preferences", "nothing/preferences"),
        ("Dir::Etc::preferencesparts", "nothing"),
    ] {
        let _ = writeln!(text, "{key} \"{dir}/{place}\";");
    }
    // Root's downloads would else run as a user who may not enter the cache.
    text.push_str("APT::Sandbox::User \"root\";\nAPT::Architecture \"amd64\";\nAcquire::Languages \"none\";\n");
    // A list that cannot be had is else only a warning, and the exit code says all is well.
    text.push_str("APT::Update::Error-Mode \"any\";\n");
    text.push_str("Acquire::Retries \"1\";\nAcquire::http::Timeout \"30\";\nAcquire::https::Timeout \"30\";\n");
    Ok(text)
}

/// An error with the last lines of what the program complained about.
pub(crate) fn succeed(what: &str, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = complaint.lines().filter(|line| !line.starts_with("W:")).collect();
    bail!("{what} failed ({}): {}", output.status, lines[lines.len().saturating_sub(6)..].join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deb822_keeps_debian_and_drops_the_rest() {
        let text = "\
# the mirror
Types: deb deb-src
URIs: http://mirror.example/debian
# within a stanza
Suites: bookworm bookworm-updates bookworm-pgdg
Components: main contrib
Signed-By:
 -----BEGIN PGP
 .
 -----END PGP
Architectures: arm64

Types: deb
URIs: http://vendor.example/apt
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://mirror.example/debian
Suites: trixie
Components: main
";
        let sources = parse_deb822(text);
        assert_eq!(sources.len(), 1);
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        let key = "\n -----BEGIN PGP\n .\n -----END PGP".to_owned();
        assert_eq!(sources[0].options, [("Signed-By".to_owned(), key)]);
        let stanza = sources[0].to_stanza();
        assert!(stanza.contains("\nSigned-By: \n -----BEGIN PGP\n"), "{stanza}");
        assert_eq!(parse_deb822(&stanza)[0].uris, ["http://mirror.example/debian"]);
    }

    #[test]
    fn one_line_entries() {
        let text = "\
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64,i386 signed-by=/k/a.gpg] http://mirror.example/debian bookworm-security main # note
deb http://vendor.example/debian bookworm stable
# deb http://mirror.example/debian trixie main
deb http://vendor.example/apt cloud-sdk-bookworm main
";
        let sources = parse_list(text);
        assert_eq!(
            sources,
            [Source {
                uris: vec!["http://mirror.example/debian".to_owned()],
                suites: vec!["bookworm-security".to_owned()],
                options: vec![("Signed-By".to_owned(), "/k/a.gpg".to_owned())],
            }]
        );
    }

    #[test]
    fn other_suites_of_the_same_mirrors() {
        let source = |uri: &str, suite: &str| Source {
            uris: vec![uri.to_owned()],
            suites: vec![suite.to_owned()],
            options: Vec::new(),
        };
        let derived =
            derived_sources(&[source("m", "trixie"), source("s", "trixie-security"), source("m", "trixie-updates")]);
        assert_eq!(derived.len(), 2);
        assert_eq!((derived[0].uris[0].as_str(), derived[0].suites.len()), ("m", SUITES.len()));
        assert_eq!((derived[1].uris[0].as_str(), derived[1].suites[0].as_str()), ("s", "bullseye-security"));
    }
}
