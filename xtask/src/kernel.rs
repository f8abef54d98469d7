//! `cargo xtask kernel`: a Debian cloud kernel for the cache, whole or not at all.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use linux::kernel_image::{KernelCache, KernelImage, cache_dir, compare_versions, release_matches};

use crate::apt::{self, Apt, Source};

/// What to fetch, and from where.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Version or its beginning, such as 6.1, 5.10 or 6.12; the newest that matches is taken
    version: String,
    /// Fetch from this mirror instead of those that apt is configured with
    #[arg(long, value_name = "URI", requires = "suite")]
    mirror: Option<String>,
    /// The suite of that mirror, such as bookworm
    #[arg(long, value_name = "NAME", requires = "mirror")]
    suite: Option<String>,
    /// Fetch even if the cache has a matching kernel, and replace the same release
    #[arg(long)]
    force: bool,
}

/// A package that holds one kernel.
struct Candidate {
    package: String,
    release: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let version = options.version.trim_start_matches('v');
    ensure!(release_matches(version, version), "{}: expected a version such as 6.1 or 5.10", options.version);
    let cache_dir = cache_dir()?;
    let cache = KernelCache::at(&cache_dir);
    if !options.force
        && let Ok(kernel) = cache.resolve_version(version)
    {
        println!("{} is in the cache: {} (--force fetches again)", kernel.release, kernel.path.display());
        return Ok(());
    }
    require_tools(&cache)?;
    fs::create_dir_all(&cache_dir).with_context(|| cache_dir.display().to_string())?;
    let stage = tempfile::Builder::new().prefix(".fetch-").tempdir_in(&cache_dir);
    let stage = stage.with_context(|| cache_dir.display().to_string())?;
    let (release, package) = fetch(options, version, stage.path())?;
    let fetched = unpack(&release, &package, stage.path())?;
    publish(&fetched, &cache.release_dir(&release), stage.path())?;
    let kernel = KernelImage::open(&cache.release_dir(&release).join("vmlinuz"))?;
    println!("{} fetched: {}", kernel.release, kernel.path.display());
    Ok(())
}

fn require_tools(cache: &KernelCache) -> Result<()> {
    for tool in ["apt-get", "apt-cache", "apt-config", "dpkg-deb"] {
        ensure!(
            is_on_path(tool),
            "no {tool} on PATH: kernels are fetched with Debian's tools; elsewhere, put an x86-64 bzImage and its \
             modules into {}/{{vmlinuz,modules/}}, or name one by its path",
            cache.release_dir("RELEASE").display()
        );
    }
    Ok(())
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Downloads the newest matching package: from the system's own suites, else from other suites of the same mirrors.
fn fetch(options: &Options, version: &str, stage: &Path) -> Result<(String, PathBuf)> {
    let rounds = if let (Some(mirror), Some(suite)) = (&options.mirror, &options.suite) {
        vec![vec![Source::new(mirror, suite)]]
    } else {
        let system = apt::system_sources()?;
        ensure!(!system.is_empty(), "apt is configured with no Debian mirror; expected one, or --mirror and --suite");
        let derived = apt::derived_sources(&system);
        vec![system, derived]
    };
    let mut complaints = Vec::new();
    for (round, sources) in rounds.iter().enumerate() {
        let suites: Vec<&str> = sources.iter().flat_map(|source| &source.suites).map(String::as_str).collect();
        println!("Linux {version}: looking in {}", suites.join(", "));
        match fetch_from(sources, version, &stage.join(format!("apt-{round}"))) {
            Ok(found) => return Ok(found),
            Err(error) => complaints.push(format!("{}: {error:#}", suites.join(", "))),
        }
    }
    bail!("no cloud kernel {version} could be had:\n  {}", complaints.join("\n  "))
}

fn fetch_from(sources: &[Source], version: &str, dir: &Path) -> Result<(String, PathBuf)> {
    let apt = Apt::new(dir, sources)?;
    let mut complaints = Vec::new();
    // One list that cannot be had does not spoil the others.
    if let Err(error) = apt.update() {
        complaints.push(format!("{error:#}"));
    }
    // A mirror may list packages that it has deleted since: then the next older one.
    for Candidate { package, release } in candidates(&apt.search("^linux-image-.*-cloud-amd64-unsigned$")?, version) {
        println!("downloading {package}");
        match apt.download(&package) {
            Ok(file) => return Ok((release, file)),
            Err(error) => {
                println!("{error:#}");
                complaints.push(format!("{package}: {error:#}"));
            }
        }
    }
    complaints.push(format!("no (further) package linux-image-{version}*-cloud-amd64-unsigned"));
    bail!("{}", complaints.join("; "))
}

/// Packages of the wanted version, newest first.
fn candidates(packages: &[String], version: &str) -> Vec<Candidate> {
    let candidate = |package: &String| {
        let release = package.strip_prefix("linux-image-")?.strip_suffix("-unsigned")?.to_owned();
        release_matches(&release, version).then(|| Candidate { package: package.clone(), release })
    };
    let mut found: Vec<Candidate> = packages.iter().filter_map(candidate).collect();
    found.sort_by(|a, b| compare_versions(&b.release, &a.release));
    found
}

/// Arranges the package's kernel and modules as the cache has them, inside the stage.
fn unpack(release: &str, package: &Path, stage: &Path) -> Result<PathBuf> {
    let (root, kernel) = (stage.join("root"), stage.join("kernel"));
    let output = Command::new("dpkg-deb").arg("-x").args([package, &root]).output().context("dpkg-deb")?;
    apt::succeed("dpkg-deb -x", &output)?;
    let installed = ["lib/modules", "usr/lib/modules"].map(|lib| root.join(lib).join(release));
    let installed = installed.iter().find(|dir| dir.is_dir());
    let installed = installed.with_context(|| format!("{}: no modules of {release}", package.display()))?;
    fs::create_dir_all(kernel.join("modules"))?;
    for (from, to) in [
        (root.join("boot").join(format!("vmlinuz-{release}")), "vmlinuz"),
        (installed.join("kernel"), "modules/kernel"),
        (installed.join("modules.builtin"), "modules/modules.builtin"),
    ] {
        fs::rename(&from, kernel.join(to)).with_context(|| format!("{}: no {}", package.display(), from.display()))?;
    }
    let image = KernelImage::open(&kernel.join("vmlinuz"))?;
    ensure!(image.release == release, "{}: holds {}, expected {release}", package.display(), image.release);
    Ok(kernel)
}

/// Puts the finished directory in its place by a rename; what was there goes away with the stage.
fn publish(fetched: &Path, place: &Path, stage: &Path) -> Result<()> {
    let describe = || place.display().to_string();
    fs::create_dir_all(place.parent().expect("a release has a directory above it")).with_context(describe)?;
    if place.exists() {
        fs::rename(place, stage.join("replaced")).with_context(describe)?;
    }
    match fs::rename(fetched, place) {
        // Someone else fetched the same release meanwhile: theirs is as good.
        Err(_) if place.join("vmlinuz").is_file() => Ok(()),
        renamed => renamed.with_context(describe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_package_of_the_version_comes_first() {
        let packages = [
            "linux-image-6.1.0-9-cloud-amd64-unsigned",
            "linux-image-6.12.1+deb13-cloud-amd64-unsigned",
            "linux-image-6.1.0-50-cloud-amd64-unsigned",
            "linux-image-6.1.0-60-cloud-amd64-dbg",
        ]
        .map(str::to_owned);
        let found = candidates(&packages, "6.1");
        let releases: Vec<&str> = found.iter().map(|candidate| candidate.release.as_str()).collect();
        assert_eq!(releases, ["6.1.0-50-cloud-amd64", "6.1.0-9-cloud-amd64"]);
        assert_eq!(found[0].package, packages[2]);
        assert!(candidates(&packages, "5.10").is_empty());
    }

    #[test]
    fn a_kernel_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (stage, place) = (dir.path().join("stage"), dir.path().join("kernels/6.1.0"));
        for generation in ["old", "new"] {
            let fetched = stage.join(generation);
            fs::create_dir_all(&fetched).unwrap();
            fs::write(fetched.join(generation), "").unwrap();
            publish(&fetched, &place, &stage).unwrap();
        }
        assert!(place.join("new").exists() && !place.join("old").exists());
        assert!(stage.join("replaced/old").exists());
    }
}
