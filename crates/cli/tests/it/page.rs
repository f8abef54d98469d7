//! The page in a real browser without a window: Debian's chromium-headless-shell, or another Chromium. A script that is put
//! behind the page uses it as a person would, and leaves what it has found in the page, which the browser prints.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{room::Room, skip, words};

const BROWSERS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// Put before everything: what goes wrong is kept.
const BEFORE: &str = "<script>window.wrong = [];
addEventListener('error', (event) => wrong.push(event.message));
addEventListener('unhandledrejection', (event) => wrong.push(String(event.reason)));
addEventListener('securitypolicyviolation', (event) => wrong.push(event.blockedURI));</script>";

/// Put behind everything: waits until maps are there, then moves the slider and the cursor, and leaves what it sees.
const BEHIND: &str = r"<script>(async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const maps = window.pagelab.maps;
  for (let turn = 0; turn < 200 && maps.now === undefined; turn += 1) await wait(20);
  await wait(100);
  const seen = { title: document.title, hacked: window.hacked ?? null, verdict: document.querySelector('.verdict').textContent };
  const pixels = () => [...document.querySelectorAll('#map canvas[tabindex]')].map((canvas) => canvas.toDataURL()).join();
  const text = () => document.querySelector('#map table').innerText;
  const slider = document.querySelector('#map input[type=range]');
  const move = async (to) => { slider.value = to; slider.dispatchEvent(new Event('input')); await wait(30); };
  await move(0);
  const first = [pixels(), text()];
  await move(slider.max);
  const last = [pixels(), text()];
  seen.mapMoves = first[0] !== last[0];
  seen.tableMoves = first[1] !== last[1];
  seen.spread = document.querySelector('#verdict p.quiet').textContent;
  seen.heading = document.querySelector('h1').textContent;
  seen.instants = [12.3e6, 754e6, 5.5 * 3600e6].map(instant).join();
  seen.alone = spread([1, 1]) + spread([1, 8]);
  seen.rows = [...document.querySelectorAll('#map tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText));
  seen.time = document.querySelector('.time').textContent;
  const canvas = document.querySelector('#map canvas[tabindex]'), before = pixels();
  for (const key of ['ArrowRight', 'ArrowRight', 'ArrowDown']) {
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  }
  await wait(600);
  seen.cursorMoves = pixels() !== before;
  seen.readout = document.querySelector('.readout').textContent;
  seen.spoken = document.querySelector('#map .hidden[aria-live]').textContent;
  const box = canvas.getBoundingClientRect(), [x, y] = [...maps.maps.values()][0].places.at(-1);
  canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + x + 1, clientY: box.top + y + 1 }));
  await wait(30);
  seen.hovered = document.querySelector('.readout').textContent;
  // Charts are drawn when they come near, or for print.
  dispatchEvent(new Event('beforeprint'));
  await wait(100);
  seen.width = [document.documentElement.scrollWidth, document.documentElement.clientWidth];
  seen.charts = document.querySelectorAll('.uplot').length;
  seen.scripts = document.scripts.length;
  seen.images = document.images.length;
  seen.wrong = window.wrong;
  document.body.replaceChildren(Object.assign(document.createElement('pre'), { id: 'seen', textContent: JSON.stringify(seen) }));
})();</script>";

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.exists()))
}

/// The findings of the script on a page, in a window of this width.
fn seen(room: &Room, program: &PathBuf, page: &str, (width, is_dark): (u32, bool)) -> Value {
    let file = room.given(&format!("page-{width}-{is_dark}.html"));
    let page =
        page.replacen("<title>", &format!("{BEFORE}<title>"), 1).replacen("</body>", &format!("{BEHIND}</body>"), 1);
    fs::write(&file, page).expect("a page");
    let mut command = Command::new(program);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=20000"]);
    command.arg(format!("--window-size={width},900"));
    command.arg(format!("--user-data-dir={}", room.given("browser").display()));
    if is_dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let output =
        command.arg(format!("file://{}", file.display())).stdin(Stdio::null()).output().expect("the browser runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let found = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (json, _) =
        found.unwrap_or_else(|| panic!("nothing was seen:\n{}\n{dom}", String::from_utf8_lossy(&output.stderr)));
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error} in {json}"))
}

#[test]
fn the_page_works_in_a_browser() {
    let name = "the_page_works_in_a_browser";
    let Some(program) = browser() else {
        return skip(name, &format!("none of {} is on PATH", BROWSERS.join(", ")));
    };
    let room = Room::new();
    // The variant's name would do something if it were more than text.
    let hostile =
        room.give("\"><img src=x onerror=window.hacked=1>.toml", "about = \"</script><b>\"\nparent = \"v6.1\"\n");
    let run =
        ["run", "thpscale", "--target", "sim", "--machine", "one-node-512m", "--set", "threads=1", "--seeds", "2"];
    let more = ["--variant", "v6.1", "--variant", &hostile, "--sample", "200ms", "--map", "-o", "result"];
    room.run(&words(&[&run, &more])).expect(0);
    room.run(&["report", "result", "-o", "page.html"]).expect(0);
    let page = fs::read_to_string(room.here().join("page.html")).expect("a page");
    for window in [(1280, false), (1280, true), (400, false)] {
        let seen = seen(&room, &program, &page, window);
        let is = |name: &str| seen[name] == true;
        assert_eq!((&seen["wrong"], &seen["hacked"]), (&serde_json::json!([]), &Value::Null), "{window:?}: {seen:#}");
        for moves in ["mapMoves", "tableMoves", "cursorMoves"] {
            assert!(is(moves), "{window:?}: {moves}: {seen:#}");
        }
        assert_eq!(seen["width"][0], seen["width"][1], "{window:?}: nothing is wider than the window");
        assert_eq!((&seen["images"], &seen["scripts"]), (&0.into(), &4.into()), "{window:?}: names are text");
        assert!(seen["charts"].as_u64() >= Some(4), "{window:?}: {seen:#}");
        let text = |name: &str| seen[name].as_str().unwrap_or_default().to_owned();
        assert!(text("readout").contains("node 0 ") && text("spoken") == text("readout"), "{window:?}: {seen:#}");
        assert!(text("hovered") != text("readout"), "{window:?}: {seen:#}");
        assert!(
            text("spread").starts_with("Rows with") && text("spread").contains("means of 2 and 2 runs, 95 % intervals")
        );
        assert!(text("heading").contains("<img src=x onerror=window.hacked=1>"), "{window:?}: {seen:#}");
        assert!(text("title").contains("<img src=x onerror=window.hacked=1>"), "{window:?}: {seen:#}");
        assert!(text("verdict").contains(" rows: "), "{window:?}: {seen:#}");
        assert!(!text("alone").contains("95 %") && text("alone").contains("one run of each"), "{window:?}: {seen:#}");
        assert_eq!(text("instants"), "12.300 s,12 min 34 s,5 h 30 min");
        // The table is that of the terminal.
        let of_seed = |seed: &str| {
            let text = room.run(&["map", "result", "--kernel", "v6.1", "--seed", seed]).expect(0).stdout;
            let row = text.lines().find_map(|line| line.strip_prefix("node 0 DMA32 ")).expect("a zone");
            row.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let known = [of_seed("1"), of_seed("2")];
        let is_row = |cells: &Value| {
            let cells: Vec<&str> = cells.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            cells[..2] == ["v6.1", "node 0 DMA32"] && known.iter().any(|known| cells[2..] == known[..])
        };
        let rows = seen["rows"].as_array().expect("rows");
        assert!(rows.iter().any(is_row), "{window:?}: {known:?} in {rows:?}");
    }
}
