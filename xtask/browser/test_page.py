"""The page of `pagelab report` in a real browser, used by mouse and keyboard: python test_page.py PAGE GRID LADDER GUESTS BROWSER DRIVER.

PAGE has two columns, the second with a name that would be markup if it were more than text; two seeds, samples, maps and chains
of three operations of each. GRID is the page of a grid of two settings, LADDER of three kernels, GUESTS of guests on a host.
"""

import itertools
import json
import math
import re
import sys
import time
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PAGE = GRID = LADDER = GUESTS = BROWSER = DRIVER = ""
HOSTILE = "<img src=x onerror=window.hacked=1>"
# Deficiencies of colour vision, all cones of a kind missing (Machado, Oliveira and Fernandes 2009), on linear RGB.
VISIONS = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Text that is seen, with its colour and the colour behind it.
TEXTS = r"""
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") return colour;
  }
  return "rgb(255, 255, 255)";
};
const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), found = [];
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement, style = getComputedStyle(parent);
  if (!node.data.trim() || style.visibility === "hidden" || !parent.getClientRects().length) continue;
  const isSvg = parent.namespaceURI.endsWith("svg");
  found.push([node.data.trim().slice(0, 40), isSvg ? style.fill : style.color, behind(isSvg ? parent.closest("div") : parent)]);
}
return found;
"""


def linear(part):
    """A part of a colour as light."""
    part /= 255
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def rgb(text):
    """The light of a colour: `#rrggbb`, `rgb(r, g, b)` or `color(srgb r g b)`."""
    if text.startswith("color(srgb"):
        parts = [255 * float(part) for part in text[len("color(srgb") : -1].split()[:3]]
    elif text.startswith("#"):
        parts = [int(text[at : at + 2], 16) for at in (1, 3, 5)]
    else:
        parts = [float(part) for part in text[text.index("(") + 1 : -1].split(",")[:3]]
    return [linear(part) for part in parts]


def contrast(one, other):
    """WCAG's contrast ratio."""
    low, high = sorted(sum(w * part for w, part in zip((0.2126, 0.7152, 0.0722), rgb(c))) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def oklab(light):
    """A colour in OKLab, where distances are about as large as they look."""
    rows = (0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005)
    l, m, s = (max(0, sum(w * part for w, part in zip(row, light))) ** (1 / 3) for row in rows)
    rows = (0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099), (0.0259040371, 0.7827717662, -0.8086757660)
    return [a * l + b * m + c * s for a, b, c in rows]


def seen_by(matrix, colour):
    """A colour as OKLab, as eyes with this vision see it."""
    light = rgb(colour)
    return oklab([max(0, min(1, sum(w * part for w, part in zip(row, light)))) for row in matrix])


def open_browser(width=1400, height=1000, dark=False):
    """A browser without a window."""
    options = webdriver.ChromeOptions()
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--force-device-scale-factor=1", f"--window-size={width},{height}"]
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.binary_location = BROWSER
    # With the path of the driver, selenium asks nobody where one is.
    browser = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    return browser


def unfolded(series):
    """The instants and the values by name of a series, from its rows of differences."""
    now, times = [0] * (len(series["columns"]) + 1), []
    values = {name: [] for name in series["columns"]}
    for row in series["rows"]:
        for place, moved in enumerate(row):
            now[place] += moved
        times.append(now[0])
        for place, name in enumerate(series["columns"]):
            values[name].append(now[place + 1])
    for name, value in series["still"].items():
        values[name] = [value] * len(times)
    return times, values


class OnePage(unittest.TestCase):
    """A browser for each class, and the page anew for each test."""

    window = {}
    ready = "window.pagelab?.maps?.now !== undefined"

    @classmethod
    def setUpClass(cls):
        cls.browser = open_browser(**cls.window)
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        self.load()

    def load(self, address=""):
        """The page at this address, once its maps are there."""
        self.browser.get("about:blank")
        self.browser.get(f"file://{self.page()}{address}")
        self.wait(self.ready)

    def page(self):
        return PAGE

    def script(self, code, *arguments):
        return self.browser.execute_script(code, *arguments)

    def wait(self, condition):
        for _ in range(200):
            if self.script(f"return Boolean({condition})"):
                time.sleep(0.25)
                return
            time.sleep(0.05)
        self.fail(f"never: {condition}")

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def data(self):
        return json.loads(self.script("return document.getElementById('data').textContent"))

    def hash(self):
        time.sleep(0.3)
        return self.script("return location.hash")

    def scroll_through(self):
        """Comes near every chart, as charts are drawn when somebody comes near."""
        for section in self.all("section"):
            self.script("arguments[0].scrollIntoView()", section)
            time.sleep(0.1)


class Quiet(OnePage):
    """The page says nothing, asks nobody, and fits."""

    def test_no_message_and_no_request(self):
        self.scroll_through()
        self.assertEqual(self.browser.get_log("browser"), [])
        asked = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        urls = [message["params"]["request"]["url"] for message in asked if message["method"] == "Network.requestWillBeSent"]
        others = [url for url in urls if not url.startswith(f"file://{self.page()}") and url != "about:blank" and url[:5] != "data:"]
        self.assertEqual(others, [])

    def test_nothing_is_wider_than_the_window(self):
        self.scroll_through()
        wide, window = self.script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        self.assertLessEqual(wide, window)

    def test_text_has_contrast(self):
        self.scroll_through()
        self.script("document.querySelectorAll('details').forEach((part) => part.open = true)")
        texts = self.script(TEXTS)
        self.assertGreater(len(texts), 100)
        pale = [(text, colour, ground) for text, colour, ground in texts if contrast(colour, ground) < 4.5]
        self.assertEqual(pale, [])


class QuietOnAPhone(Quiet):
    window = {"width": 400, "height": 800}


class OfGrid(OnePage):
    ready = "window.pagelab !== undefined"

    def page(self):
        return GRID


class QuietGrid(OfGrid, Quiet):
    pass


class QuietGridOnAPhone(OfGrid, QuietOnAPhone):
    pass


class QuietGridAtNight(OfGrid, Quiet):
    window = {"dark": True}


class Grids(OfGrid):
    def test_a_cell_opens_its_comparison(self):
        pairs = self.data()["pairs"]
        cells = self.all("#changes button.cell")
        self.assertEqual(len(cells), sum(len(pair["all"]) for pair in pairs))
        last = pairs[-1]
        self.script("document.querySelectorAll('#changes details').forEach((part) => part.open = true)")
        row = self.all("#changes tbody tr")[0].find_elements(By.CSS_SELECTOR, "button.cell")[-1]
        row.send_keys(Keys.ENTER)
        self.assertEqual(self.script("return pagelab.state.pair"), f"{last['old']} \u2192 {last['new']}")
        self.assertIn(last["which"], self.one("#verdict").text)

    def test_the_map_has_the_values_of_the_grid(self):
        sweep = self.data()["sweep"]
        self.assertEqual([axis["name"] for axis in sweep["axes"]].count("vm.extfrag_threshold"), 1)
        row = sweep["rows"][-1]
        self.script("change({ row: arguments[0] })", f"{row['metric']} {row['case']}")
        cells = self.all("#sweep table.grid td")
        self.assertEqual([cell.text for cell in cells], self.script("return arguments[0].map(short)", [point["value"] for point in row["points"]]))
        framed = [cell.get_attribute("class").split().count("default") for cell in cells]
        self.assertEqual(sum(framed), 0 if sweep["default"] is None else 1)
        flat = [region for region in row["regions"] if region["is_sure"]]
        marked = [cell for cell in cells if "flat" in cell.get_attribute("class").split()]
        self.assertEqual(bool(marked), bool(flat))


class OfLadder(OnePage):
    ready = "window.pagelab !== undefined"

    def page(self):
        return LADDER


class QuietLadder(OfLadder, Quiet):
    pass


class QuietLadderOnAPhone(OfLadder, QuietOnAPhone):
    pass


class Ladders(OfLadder):
    def test_each_kernel_is_compared_with_the_one_before(self):
        data = self.data()
        self.assertEqual([pair["old"] for pair in data["pairs"]], data["columns"][:1] * 2)
        self.assertEqual([[pair["old"], pair["new"]] for pair in data["steps"]], [data["columns"][:2], data["columns"][1:]])
        chosen = self.one("#changes select")
        chosen.find_element(By.CSS_SELECTOR, "option[value=steps]").click()
        cells = self.all("#changes button.cell")
        self.assertEqual(len(cells), sum(len(pair["all"]) for pair in data["steps"]))
        self.script("document.querySelectorAll('#changes details').forEach((part) => part.open = true)")
        cells[1].send_keys(Keys.ENTER)
        self.assertIn(data["steps"][1]["which"], self.one("#verdict").text)
        self.load(self.hash())
        self.assertIn(data["steps"][1]["which"], self.one("#verdict").text, "the link keeps it")
        self.assertEqual(self.one("#changes select").get_property("value"), "steps")

    def test_rows_without_a_change_are_folded(self):
        same = self.script("return DATA.pairs[0].all.filter(({ name }) => DATA.pairs.every("
                           "(pair) => pair.all.find((row) => row.name === name).verdict === 'same')).length")
        folded = self.all("#changes details tbody tr")
        self.assertEqual(len(folded), same)


class OfGuests(OnePage):
    ready = "window.pagelab !== undefined"

    def page(self):
        return GUESTS


class QuietGuests(OfGuests, Quiet):
    pass


class QuietGuestsOnAPhone(OfGuests, QuietOnAPhone):
    pass


class Frontiers(OfGuests):
    def test_every_way_has_its_number_in_the_chart(self):
        self.script("document.querySelector('#frontier').scrollIntoView()")
        time.sleep(0.3)
        ways = [row for row in self.data()["frontier"] if row["host_s"] is not None]
        labels = self.script(
            """const svg = document.querySelector('#frontier svg[role=img]'), box = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text:not(.quiet)')].map((text) => {
              const at = text.getBoundingClientRect();
              return [text.textContent, at.left >= box.left && at.right <= box.right];
            })"""
        )
        numbers = sorted(int(number) for text, _ in labels for number in re.findall(r"(?:^|, )(\d+)(?=,|$| )", text))
        self.assertEqual(numbers, list(range(1, len(ways) + 1)))
        self.assertTrue(all(is_inside for _, is_inside in labels), labels)
        rows = [row.text for row in self.all("#frontier tbody tr")][: len(ways)]
        for number, (row, way) in enumerate(zip(rows, ways, strict=True), 1):
            self.assertRegex(row, rf"^{number}\s+{re.escape(way['column']['kernel'])}")


class FrontiersOnAPhone(Frontiers):
    window = {"width": 400, "height": 800}


class QuietAtNight(Quiet):
    window = {"dark": True}

    def test_lines_stand_out(self):
        colours = self.script("return [0, 1, 2, 3, 4, 5].map((at) => css(`--column-${at}`))")
        ground = self.script("return css('--ground')")
        self.assertGreaterEqual(min(contrast(colour, ground) for colour in colours), 3)


class Colours(OnePage):
    def test_a_column_has_one_stroke_everywhere(self):
        self.scroll_through()
        for name in self.data()["columns"]:
            samples = self.script(
                """return [...document.querySelectorAll('.sample')].filter((mark) => mark.parentElement.textContent.includes(arguments[0]))
                .map((mark) => [getComputedStyle(mark.firstChild).stroke, mark.firstChild.getAttribute('stroke-dasharray') ?? ''])""",
                name,
            )
            self.assertGreaterEqual(len(samples), 5, name)
            self.assertEqual(len({tuple(sample) for sample in samples}), 1, name)
            [colour, dash] = samples[0]
            drawn = self.script(
                """return [...timeCharts].map(({ plot }) => plot.series.find((series) => series.label === arguments[0]))
                .filter(Boolean).map((series) => [series._stroke ?? series.stroke(), series.dash.join(' ')])""",
                name,
            )
            self.assertGreaterEqual(len(drawn), 4)
            for stroke, of_line in drawn:
                self.assertEqual((rgb(stroke), of_line), (rgb(colour), dash), name)
            bars = self.script("return [...document.querySelectorAll('#causes path')].map((line) => getComputedStyle(line).stroke)")
            self.assertIn(colour, bars)

    def test_24_columns_differ_and_12_do_for_all_eyes(self):
        strokes = self.script(
            """DATA.columns = [...Array(24).keys()].map(String);
            return DATA.columns.map((name) => [inkOf(name), strokeOf(name).dash.join(' ')])"""
        )
        self.assertEqual(len({tuple(stroke) for stroke in strokes}), 24)
        for (one, dash), (other, of_other) in itertools.combinations(strokes[:12], 2):
            for vision, matrix in VISIONS.items():
                apart = math.dist(seen_by(matrix, one), seen_by(matrix, other))
                self.assertTrue(dash != of_other or apart > 0.15, (one, other, vision, apart))

    def test_a_switched_column_is_gone_from_all_charts(self):
        self.scroll_through()
        button = self.all("#over-time button.column")[0]
        self.script("arguments[0].scrollIntoView()", button)
        button.click()
        self.wait("offColumns.size === 1")
        name = self.data()["columns"][0]
        shown = self.script(
            "return [...timeCharts].map(({ plot }) => plot.series.find((of) => of.label === arguments[0])).map((of) => of?.show)", name
        )
        self.assertNotIn(True, shown)
        pressed = self.script("return [...document.querySelectorAll('button.column')].map((of) => of.getAttribute('aria-pressed'))")
        self.assertEqual(pressed.count("false"), pressed.count("true"), "in all legends")
        self.load(self.hash())
        self.assertEqual(self.script("return [...offColumns]"), [name], "the link keeps it")


class ColoursAtNight(Colours):
    window = {"dark": True}


class Tools(OnePage):
    def chart(self):
        chart = self.one("#map .u-over")
        self.script("arguments[0].scrollIntoView({ block: 'center' })", chart)
        time.sleep(0.2)
        return chart

    def test_the_cursor_reads_out_the_data(self):
        data = self.data()
        self.script("document.querySelector('#over-time').scrollIntoView()")
        time.sleep(0.4)
        figure = self.all("#over-time figure")[0]
        self.assertEqual(figure.find_element(By.TAG_NAME, "figcaption").text, "Free memory, MiB")
        over = figure.find_element(By.CSS_SELECTOR, ".u-over")
        ActionChains(self.browser).move_to_element_with_offset(over, over.size["width"] // 5, 10).perform()
        time.sleep(0.3)
        at = self.script("const [chart] = [...timeCharts].filter(({ figure }) => figure === arguments[0]);"
                         "return chart.plot.data[0][chart.plot.cursor.idx]", figure)
        shown = [text.text for text in figure.find_elements(By.CSS_SELECTOR, ".values b")]
        for kernel, text in zip(data["kernels"], shown, strict=True):
            times, values = unfolded(kernel["series"])
            if at > times[-1]:
                self.assertEqual(text, "ended")
                continue
            place = max(place for place, time_of in enumerate(times) if time_of <= at)
            free = sum(of[place] for name, of in values.items() if name.split("/")[-1] == "nr_free_pages") / 256
            self.assertEqual(text, self.script("return short(arguments[0])", free), kernel["name"])
        # One cursor through all charts that are drawn.
        instants = self.script("return [...timeCharts].map(({ plot }) => plot.data[0][plot.cursor.idx])")
        self.assertEqual(set(instants), {at})

    def test_zoom_and_instant_come_back_by_the_link(self):
        chart = self.chart()
        ActionChains(self.browser).move_to_element_with_offset(chart, -60, 10).click_and_hold().move_by_offset(150, 0).release().perform()
        time.sleep(0.3)
        [low, high] = self.script("return pagelab.state.zoom")
        self.assertLess(low, high)
        for shown in self.script("return [...timeCharts].map(({ plot }) => [plot.scales.x.min, plot.scales.x.max])"):
            self.assertEqual(shown, [low, high])
        ActionChains(self.browser).move_to_element_with_offset(chart, 20, 10).click().perform()
        time.sleep(0.3)
        at = self.script("return pagelab.state.at")
        self.script("pagelab.change({ zone: pagelab.maps.kernels[0].map.bands.at(-1).zone })")
        before = self.script("return JSON.stringify([pagelab.state.zone, pagelab.maps.now])")
        self.load(self.hash())
        self.assertEqual(self.script("return JSON.stringify([pagelab.state.zone, pagelab.maps.now])"), before)
        after = self.script("return [pagelab.state.at, ...pagelab.state.zoom]")
        for now, then in zip(after, [at, low, high]):
            self.assertAlmostEqual(now, then, delta=1, msg="to a microsecond")
        ActionChains(self.browser).double_click(self.chart()).perform()
        self.wait("pagelab.state.zoom === null")
        self.assertAlmostEqual(self.script("return pagelab.state.at"), at, delta=1, msg="a double click chooses no instant")

    def test_the_first_instant_is_the_one_that_differs_most(self):
        kernels = self.data()["kernels"]
        at = self.script("return pagelab.state.at")
        lines = [dict(zip(unfolded(kernel["series"])[0], kernel["unusable"])) for kernel in kernels]
        both = sorted(set(lines[0]) & set(lines[1]))
        most = max(abs(lines[0][us] - lines[1][us]) for us in both)
        if most > 0 and at in both:
            self.assertEqual(abs(lines[0][at] - lines[1][at]), most)

    def test_a_stall_opens(self):
        kernels = self.data()["kernels"]
        for kernel in kernels:
            kernel["stalls"] = kernel["stalls"][len(kernel["chains"]):]
        longest = max((stall | {"kernel": kernel["name"], "why": kernel["why"]} for kernel in kernels for stall in kernel["stalls"]),
                      key=lambda stall: stall["ms"])
        number = self.script(
            "return pagelab.timeline.stalls.findIndex(({ kernel, stall }) => kernel.name === arguments[0] && stall.number === arguments[1])",
            longest["kernel"], longest["number"],
        )
        strip = self.one(".strip svg")
        strip.send_keys(Keys.ARROW_RIGHT)
        time.sleep(0.2)
        self.assertIn("of task", self.one(".detail").text, "by keyboard")
        self.script("const { kernel, stall } = pagelab.timeline.stalls[arguments[0]];"
                    "pagelab.timeline.open(nameOfStall(kernel, stall.number))", number)
        text = self.one(".detail").text
        self.assertIn(f"{longest['why']} {longest['number']}", text)
        self.assertIn(longest["parts"][0][0], text)
        self.assertAlmostEqual(self.script("return pagelab.state.at"), longest["at_us"], delta=1)

    def test_a_distribution_reads_out(self):
        over = self.one("#distributions .u-over")
        self.script("arguments[0].scrollIntoView({ block: 'center' })", over)
        ActionChains(self.browser).move_to_element_with_offset(over, 50, 10).perform()
        time.sleep(0.3)
        line = self.one("#distributions .values").text
        self.assertRegex(line, r"at most \S+ us[\s\S]* %")
        splits = self.script("return document.querySelectorAll('#distributions .uplot').length")
        self.assertEqual(splits, 1)


class Chains(OnePage):
    """Chains of the three slowest operations of each run, in the panel of a stall and in their list."""

    def chained(self):
        """The names of the operations with chains, the longest first, each with its kernel and its stall."""
        return self.script(
            """return DATA.kernels.flatMap((kernel) => kernel.chains.map((chain) => [nameOfStall(kernel, chain.number), chain.text,
                 kernel.stalls.find((stall) => stall.number === chain.number)])).sort((a, b) => b[2].ms - a[2].ms)"""
        )

    def test_a_mark_opens_its_chain(self):
        name, text, stall = self.chained()[0]
        # Marks may lie over each other: the click goes to the mark, wherever it is.
        self.script(
            """const at = pagelab.timeline.stalls.findIndex(({ kernel, stall }) => nameOfStall(kernel, stall.number) === arguments[0]);
            document.querySelectorAll('.strip .stall')[at].dispatchEvent(new MouseEvent('click', { bubbles: true }))""",
            name,
        )
        detail = self.one(".detail")
        self.assertEqual(self.one(".detail pre").get_property("textContent").strip(), text.strip())
        self.assertIn(stall["parts"][0][0], detail.text)
        self.assertNotIn("Its chain, from the request", detail.text)
        self.load(self.hash())
        self.assertEqual(self.script("return pagelab.state.stall"), name, "the link keeps it")
        self.assertEqual(self.one(".detail pre").get_property("textContent").strip(), text.strip())
        self.one(".detail .close").click()
        self.assertEqual(self.one(".detail").text, "")
        self.assertNotIn("stall=", self.hash())

    def test_the_keyboard_opens_and_closes_it(self):
        names = {name for name, _, _ in self.chained()}
        strip = self.one(".strip svg")
        strip.send_keys(Keys.ARROW_RIGHT)
        opened = [self.script("return pagelab.state.stall")]
        for _ in self.script("return pagelab.timeline.stalls"):
            if opened[-1] in names:
                break
            self.one(".strip svg").send_keys(Keys.ARROW_RIGHT)
            opened.append(self.script("return pagelab.state.stall"))
        self.assertIn(opened[-1], names)
        chain = self.one(".detail pre")
        chain.send_keys(Keys.TAB)
        chain.send_keys(Keys.ESCAPE)
        self.assertEqual(self.script("return pagelab.state.stall"), "")
        self.assertEqual(self.one(".detail").text, "")
        focus = self.script("return document.activeElement.closest('.strip') !== null")
        self.assertTrue(focus, "the keyboard is where it was")

    def test_the_list_has_all_with_links_to_their_instants(self):
        chained = self.chained()
        self.assertGreater(len(chained), 1)
        shown = self.all("#chains details")
        self.assertEqual(len(shown), len(chained))
        for part, (name, text, stall) in zip(shown, chained, strict=True):
            part.find_element(By.TAG_NAME, "summary").click()
            self.assertEqual(part.find_element(By.TAG_NAME, "pre").get_property("textContent").strip(), text.strip())
            part.find_element(By.CSS_SELECTOR, "a").click()
            self.assertEqual(self.script("return pagelab.state.stall"), name)
            self.assertAlmostEqual(self.script("return pagelab.state.at"), stall["at_us"], delta=1)
        instant = self.one(".detail pre button")
        instant.click()
        wanted = float(instant.text.split()[0]) * 1e6
        self.assertAlmostEqual(self.script("return pagelab.state.at"), wanted, delta=2)
        self.assertIn("--why 12", self.one("#chains").text, "the page says how to get more")


class Blocks(OnePage):
    def places(self):
        """The middles of the cells of the first map, from the middle of its canvas, with their pageblocks."""
        return self.script(
            """const [map] = pagelab.maps.maps.values(), box = map.canvas.getBoundingClientRect(), half = map.cell / 2;
            return map.places.filter(Boolean).map(([x, y, , block]) => [x + half - box.width / 2, y + half - box.height / 2, block])"""
        )

    def canvas(self):
        canvas = self.one("#map canvas[tabindex]")
        self.script("arguments[0].scrollIntoView({ block: 'center' })", canvas)
        time.sleep(0.2)
        return canvas

    def test_a_click_says_what_happened(self):
        canvas, [x, y, block] = self.canvas(), self.places()[40]
        ActionChains(self.browser).move_to_element_with_offset(canvas, x, y).click().perform()
        time.sleep(0.2)
        self.assertEqual(self.script("return pagelab.state.block"), block)
        text = self.one(".history").text
        self.assertRegex(text, r"^Pageblock \d+, node 0 \w+, .* at .* s\n\d+ of \d+ samples changed this block")
        # A sample that is said to have changed the block has other bytes than the one before.
        said, known = self.script(
            """const [map] = pagelab.maps.maps.values(), cell = map.cursor, found = [];
            for (let at = 1; at < map.map.at_us.length; at += 1)
              if ([0, 1].some((byte) => map.bytes[at * map.length + 2 * cell + byte] !== map.bytes[(at - 1) * map.length + 2 * cell + byte]))
                found.push(map.map.at_us[at]);
            return [historyOf(map, cell, map.places[cell]).filter(([, words]) => words).map(([us]) => us), found]"""
        )
        self.assertEqual(said, known)
        self.load(self.hash())
        self.assertRegex(self.one(".history").text, r"samples changed this block")

    def test_a_block_names_its_movers(self):
        block, sample, us = self.script(
            """const [map] = pagelab.maps.maps.values(), found = [];
            map.moves.samples.forEach((moves, sample) => moves.forEach(([cell, , , came, left]) => found.push([came + left, cell, sample])));
            const [, cell, sample] = found.sort((a, b) => b[0] - a[0])[0];
            return [map.places[cell][3], sample, map.map.at_us[sample]]"""
        )
        self.script("pagelab.change({ block: arguments[0], at: arguments[1] })", block, us)
        text = self.one(".history").text
        self.assertRegex(text, r"(task \d+|kcompactd0|khugepaged), (compaction|fallback|collapse).*: [\d,]+ (came|left|taken)")
        # A name of a mover would be markup if it were more than text.
        self.script(
            """const [map] = pagelab.maps.maps.values();
            map.moves.movers.fill(arguments[0]);
            map.moves.reasons.fill(arguments[0]);
            map.tell()""",
            HOSTILE,
        )
        self.assertIn(f"{HOSTILE}, {HOSTILE}", self.one(".history").text)
        self.assertEqual(self.script("return [document.images.length, window.hacked ?? null]"), [0, None])

    def test_a_stroke_shows_a_stretch(self):
        canvas, places = self.canvas(), self.places()
        [x, y, first], [to_x, to_y, last] = places[10], places[30]
        chain = ActionChains(self.browser).move_to_element_with_offset(canvas, x, y).click_and_hold()
        chain.move_to_element_with_offset(canvas, to_x, to_y).release().perform()
        time.sleep(0.3)
        self.assertEqual(self.script("return pagelab.state.blocks"), [first, last])
        shown = [block for _, _, block in self.places()]
        self.assertEqual((shown[0], shown[-1]), (first, last))
        self.load(self.hash())
        self.assertEqual([block for _, _, block in self.places()], shown)
        ActionChains(self.browser).double_click(self.canvas()).perform()
        self.wait("pagelab.state.blocks === null")
        self.assertEqual(len(self.places()), len(places))
        [closer] = [button for button in self.all("#map button") if button.text == "Closer"]
        closer.click()
        self.assertLess(len(self.places()), len(places))


class Keyboard(OnePage):
    def test_tab_reaches_all(self):
        wanted = self.script(
            """window.reached = new Set();
            document.addEventListener('focusin', (event) => reached.add(event.target));
            const all = 'a[href], button, select, input, summary, [tabindex="0"]';
            window.wanted = [...document.querySelectorAll(all)].filter((node) => node.checkVisibility());
            return wanted.length"""
        )
        self.assertGreater(wanted, 10)
        for _ in range(wanted + 5):
            ActionChains(self.browser).send_keys(Keys.TAB).perform()
        missed = self.script("return wanted.filter((node) => !reached.has(node)).map((node) => node.outerHTML.slice(0, 90))")
        self.assertEqual(missed, [])

    def test_arrows_move_the_instant_and_the_block(self):
        slider = self.one("#map input[type=range]")
        slider.send_keys(Keys.HOME)
        first = self.script("return pagelab.maps.now")
        slider.send_keys(Keys.ARROW_RIGHT)
        self.assertEqual(self.script("return pagelab.maps.times.indexOf(pagelab.maps.now)"), 1)
        slider.send_keys(Keys.END)
        self.assertGreater(self.script("return pagelab.maps.now"), first)
        self.one("#map canvas[tabindex]").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
        self.assertIn("node 0 ", self.one(".readout").text)


class Names(OnePage):
    def test_markup_in_names_stays_text(self):
        self.scroll_through()
        self.assertIsNone(self.script("return window.hacked ?? null"))
        self.assertEqual(self.script("return document.images.length"), 0)
        self.assertIn(HOSTILE, self.one("h1").text)
        self.assertIn(HOSTILE, self.one("#chains").text)
        self.assertIn(HOSTILE, self.browser.title)

    def test_an_address_with_markup_stays_text(self):
        for address in ["#part=<img src=x onerror=window.hacked=1>&zone=<b>&off=<b>&at=x&zoom=1-0", "#at=1e999&left=%00&of=<script>"]:
            self.load(address)
            self.assertIsNone(self.script("return window.hacked ?? null"))
            self.assertEqual(self.script("return [document.images.length, offColumns.size]"), [0, 0])
            self.assertEqual(self.browser.get_log("browser"), [])


if __name__ == "__main__":
    PAGE, GRID, LADDER, GUESTS, BROWSER, DRIVER = (sys.argv.pop(1) for _ in range(6))
    program = unittest.main(verbosity=2, exit=False)
    wrong = len(program.result.failures) + len(program.result.errors)
    print(f"{program.result.testsRun - wrong} passed, {wrong} failed", flush=True)
    sys.exit(1 if wrong else 0)
