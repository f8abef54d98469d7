//! Pictures of pages of `pagelab report`, of runs of the simulator, taken by a browser without a window: docs/gallery.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::base::PAGELAB;

/// Where the pictures are.
const FOLDER: &str = "docs/gallery";
/// Programs that take them; the first that is on PATH does.
const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// A picture has to be smaller.
const BYTES_MAX: usize = 300_000;
/// Pixels from left to right: what the pages are made for.
const WIDTH: u32 = 1280;

/// A picture, the run whose page it is of, and what of the page is on it.
struct Picture {
    name: &'static str,
    /// Arguments of `pagelab run`.
    run: &'static [&'static str],
    /// Names of sections.
    sections: &'static str,
    /// What is chosen on the page, as its scripts take it: the instant in microseconds, a metric, a row.
    chosen: &'static str,
    /// Pixels from top to bottom.
    height: u32,
}

const LARGE_VM: [&str; 10] = [
    "vm-larger-than-a-node",
    "--machine",
    "two-node-4g",
    "--variant",
    "v4.18",
    "--variant",
    "v4.18+1",
    "--set",
    "size=60%",
    "--sample=20ms",
];

const SERIES: [&str; 7] =
    ["thpscale-4.1", "--column", "4.1-rc2+0", "--column", "4.1-rc2+4", "--seeds=8", "--sample=1s"];

const PICTURES: [Picture; 6] = [
    Picture { name: "intervals", run: &SERIES, sections: "'verdict'", chosen: "{}", height: 470 },
    Picture {
        name: "distribution",
        run: &SERIES,
        sections: "'distributions'",
        chosen: "{ of: 'fault_latency_us fault-base-7' }",
        height: 540,
    },
    Picture {
        name: "settings",
        run: &[
            "thpscale-4.1",
            "--variant",
            "v4.1-rc2",
            "--set",
            "transparent_hugepage/defrag=always,never",
            "--set",
            "vm.extfrag_threshold=400,500,600,900",
            "--sample=10s",
        ],
        sections: "'sweep'",
        chosen: "{ row: 'thp_success_pct huge-1' }",
        height: 460,
    },
    Picture { name: "storm", run: &LARGE_VM, sections: "'map'", chosen: "{ zoom: [7.5e6, 9.5e6] }", height: 960 },
    Picture {
        name: "nodes",
        run: &LARGE_VM,
        sections: "'over-time'",
        chosen: "{ zoom: [7.5e6, 9.5e6] }",
        height: 1070,
    },
    Picture {
        name: "guest",
        run: &["guest-footprint", "--sample=500ms"],
        sections: "'map'",
        chosen: "{}",
        height: 680,
    },
];

/// Put behind a page: waits for its maps, leaves out what is not on the picture, and chooses what is.
const BEHIND: &str = "<script>(async () => {
  const maps = window.pagelab.maps;
  for (let turn = 0; turn < 500 && maps.now === undefined; turn += 1) await new Promise((done) => setTimeout(done, 20));
  for (const section of document.querySelectorAll('section')) if (![SECTIONS].includes(section.id)) section.remove();
  window.pagelab.change(CHOSEN);
  // Charts wait until they come near, or for print.
  for (const kind of ['beforeprint', 'afterprint']) dispatchEvent(new Event(kind));
})();</script>";

/// Makes all pictures, each there whole or as it was.
pub(crate) fn run(workspace: &Metadata) -> Result<()> {
    let browser = browser().with_context(|| format!("none of {} is on PATH", BROWSERS.join(", ")))?;
    let room = tempfile::tempdir().context("a temporary directory")?;
    let program = PAGELAB.of_this_tree(workspace, room.path())?;
    let folder = workspace.workspace_root.as_std_path().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for picture in &PICTURES {
        let png = picture.take(&program, &browser, room.path()).with_context(|| picture.name.to_owned())?;
        ensure!(png.len() < BYTES_MAX, "{}: {} bytes are more than {BYTES_MAX}", picture.name, png.len());
        let path = folder.join(format!("{}.png", picture.name));
        fs::write(&path, &png).with_context(|| path.display().to_string())?;
        println!("{}: {} bytes, pagelab run {} --map", path.display(), png.len(), picture.run.join(" "));
    }
    Ok(())
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.exists()))
}

impl Picture {
    /// The bytes of a PNG.
    fn take(&self, program: &Path, browser: &Path, room: &Path) -> Result<Vec<u8>> {
        // Two pictures of one run are of one result.
        let result = self.run.join(" ").replace(['/', ' '], "_");
        let page = format!("{result}.html");
        if !room.join(&page).exists() {
            let mut run = Command::new(program);
            run.arg("run").args(self.run).args(["--map", "--quiet", "-o", &result, "--report", &page]);
            let output = run.current_dir(room).output().context("pagelab")?;
            ensure!(output.status.success(), "pagelab run: {}", String::from_utf8_lossy(&output.stderr));
        }
        let behind = BEHIND.replace("SECTIONS", self.sections).replace("CHOSEN", self.chosen);
        let html = fs::read_to_string(room.join(&page))?.replacen("</body>", &format!("{behind}</body>"), 1);
        let (file, png) = (room.join("page.html"), room.join("page.png"));
        fs::write(&file, html)?;
        let mut command = Command::new(browser);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ]);
        command.arg("--virtual-time-budget=60000").arg(format!("--window-size={WIDTH},{}", self.height));
        command.arg(format!("--user-data-dir={}", room.join("browser").display()));
        command.arg(format!("--screenshot={}", png.display())).arg(format!("file://{}", file.display()));
        let output = command.stdin(Stdio::null()).output().context("the browser")?;
        match fs::read(&png) {
            Ok(bytes) => {
                fs::remove_file(&png)?;
                Ok(bytes)
            }
            Err(_) => bail!("no picture was taken:\n{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
