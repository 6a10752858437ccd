"""The page in Chromium: its script, keys, themes, and what comes while one looks."""

import json
import time

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from pyspark_log import Store, TopicPartition
from tests.browser import browser
from tests.server_tools import PATIENCE
from tests.ui_tools import shown

# Chromium takes a sixth of the seconds of all other tests of the page.
pytestmark = pytest.mark.slow

EVIL = "<script>document.title='run'</script><img src=data:,x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.create(tmp_path_factory.mktemp("browser") / "store") as store:
        store.create_topic("orders", 2)
        store.create_topic("payments", 1)
        for number in range(120):
            store.append("orders", [{"key": f"k{number % 7}", "value": f'{{"number": {number}}}'}])
        store.append("payments", [{"key": EVIL, "value": EVIL, "headers": [(EVIL, EVIL.encode())]}])
        store.groups["billing"].commit({TopicPartition("orders", 0): 3})
        yield store


@pytest.fixture(scope="module")
def page(store):
    with shown(store.path) as page:
        yield page


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def driver(chromium):
    """A browser that has met no error at the end, in its console or its script."""
    chromium.get_log("browser")
    yield chromium
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    assert chromium.title != "run"


def press(driver, *keys):
    driver.switch_to.active_element.send_keys(*keys)


def until(driver, found):
    # Parts of a page may be renewed while they are looked at.
    return WebDriverWait(driver, PATIENCE, 0.05, [StaleElementReferenceException]).until(lambda _: found())


def all_of(driver, selector):
    return driver.find_elements(By.CSS_SELECTOR, selector)


def names(driver):
    """Those that are shown, of one moment: the page renews its rows."""
    return driver.execute_script(
        "return [...document.querySelectorAll('tr[data-name]')]"
        ".filter((row) => row.offsetParent !== null).map((row) => row.dataset.name)"
    )


def total(driver):
    """The number of all rows, of one moment."""
    return driver.execute_script("return document.getElementById('rows').innerText")


def active(driver):
    return driver.switch_to.active_element


@pytest.mark.parametrize(
    "path",
    ["/", "/?internal=1", "/topics/orders", "/topics/orders/records", "/topics/payments/records",
     "/topics/payments/records/0/0", "/groups", "/groups?group=billing", "/publishes", "/server"],
)  # fmt: skip
def test_pages_open_without_an_error(driver, page, path):
    driver.get(page.url + path)
    assert driver.find_element(By.TAG_NAME, "h1")
    width, room = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= room


def test_what_a_record_holds_is_not_run(driver, page):
    for path in ("/topics/payments/records", "/topics/payments/records/0/0"):
        driver.get(page.url + path)
        assert "<script>" in driver.find_element(By.TAG_NAME, "main").text
        assert all_of(driver, "main script, main img") == []
    # The policy of the page alone would stop it, too.
    insert = "const one = document.createElement('div'); one.innerHTML = arguments[0]; document.body.append(one)"
    driver.execute_script(insert, EVIL)
    until(driver, lambda: any("Content Security Policy" in one["message"] for one in driver.get_log("browser")))
    assert driver.title != "run"
    # What it says of this is no error of the page.
    driver.get(page.url)
    driver.get_log("browser")


def test_the_filter_by_keys(driver, page):
    driver.get(page.url)
    assert names(driver) == ["orders", "payments"]
    press(driver, "/")
    assert active(driver).get_attribute("id") == "filter"
    press(driver, "pay")
    assert names(driver) == ["payments"]
    press(driver, Keys.ENTER)
    until(driver, lambda: "filter=pay" in driver.current_url)
    assert names(driver) == ["payments"]
    press(driver, "/")
    press(driver, Keys.ESCAPE)
    assert active(driver).tag_name == "body"


def test_rows_by_keys(driver, page):
    driver.get(f"{page.url}/topics/orders/records?partition=0")
    press(driver, "j")
    first = active(driver).text
    press(driver, "j")
    second = active(driver).text
    assert int(first) == int(second) + 1
    press(driver, "k")
    assert active(driver).text == first
    press(driver, Keys.ENTER)
    until(driver, lambda: driver.current_url.endswith(f"/records/0/{first}"))
    press(driver, "p")
    until(driver, lambda: f"/records/0/{second}" in driver.current_url)
    press(driver, "u")
    until(driver, lambda: driver.current_url.endswith("records?partition=0"))


def look(driver, page, text):
    driver.get(f"{page.url}/topics/orders/records")
    press(driver, "/")
    press(driver, text, Keys.ENTER)
    until(driver, lambda: "at=" in driver.current_url)
    return [row.text for row in all_of(driver, "table.records tbody tr")]


def test_looks_by_offset_time_and_key(driver, page, store):
    rows = look(driver, page, "10")
    assert "by=offset" in driver.current_url
    assert [row.id for row in all_of(driver, "#r0-9")] == []
    assert all_of(driver, "#r0-10")
    rows = look(driver, page, "k3")
    assert "by=key" in driver.current_url
    assert len(rows) == 17
    assert all(" k3 " in row for row in rows)
    rows = look(driver, page, "1h")
    assert "by=time" in driver.current_url
    assert len(rows) == 50
    assert '{"number": 0}' in rows[0]


def first_row(driver):
    """The text and the classes of the newest record."""
    return driver.execute_script(
        "const row = document.querySelector('table.records tbody tr'); return [row.innerText, row.className]"
    )


def test_live_shows_what_comes(driver, page, store):
    driver.get(f"{page.url}/topics/orders/records")
    press(driver, "l")
    until(driver, lambda: "live=1" in driver.current_url)
    store.append("orders", [{"key": "now", "value": "just arrived"}])
    text, classes = until(driver, lambda: "just arrived" in first_row(driver)[0] and first_row(driver))
    assert ("just arrived" in text, classes) == (True, "new")
    # A row that has the focus keeps it.
    press(driver, "j")
    focused = driver.execute_script("return document.activeElement.href")
    store.append("orders", [{"key": "now", "value": "still later"}])
    until(driver, lambda: "still later" in first_row(driver)[0])
    assert driver.execute_script("return document.activeElement.href") == focused


def test_live_keeps_what_is_looked_for(driver, page, store):
    driver.get(f"{page.url}/topics/orders/records?text=needle")
    press(driver, "l")
    until(driver, lambda: "live=1" in driver.current_url)
    store.append("orders", [{"value": "a needle"}, {"value": "hay"}])
    assert "a needle" in until(driver, lambda: rows_shown(driver) and first_row(driver)[0])
    driver.find_element("css selector", "form.look button").click()
    until(driver, lambda: "text=needle" in driver.current_url)
    assert "live=1" in driver.current_url


def rows_shown(driver):
    return len(driver.find_elements("css selector", "table.records tbody tr"))


def test_the_numbers_of_a_page_are_renewed(driver, page, store):
    driver.get(page.url)
    before = total(driver)
    press(driver, "/")
    press(driver, "ord")
    store.append("orders", [{"value": "v"}] * 1000)
    assert "1,1" not in before
    until(driver, lambda: "1,1" in total(driver))
    assert active(driver).get_attribute("value") == "ord"
    assert names(driver) == ["orders"]


def colours(driver):
    return driver.execute_script("const of = getComputedStyle(document.body); return [of.color, of.backgroundColor]")


def light(colour):
    return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) > 3 * 128


def test_themes(driver, page):
    driver.get(page.url)
    assert [light(one) for one in colours(driver)] == [False, True]
    press(driver, "t")
    assert [light(one) for one in colours(driver)] == [True, False]
    # It is kept.
    driver.get(f"{page.url}/groups")
    assert [light(one) for one in colours(driver)] == [True, False]
    driver.find_element(By.ID, "theme").click()
    assert [light(one) for one in colours(driver)] == [False, True]
    driver.execute_script("localStorage.clear()")
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [dark]})
    driver.get(page.url)
    assert [light(one) for one in colours(driver)] == [True, False]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_keys_are_listed(driver, page):
    driver.get(page.url)
    press(driver, "?")
    assert driver.find_element(By.ID, "help").is_displayed()
    press(driver, Keys.ESCAPE)
    until(driver, lambda: not driver.find_element(By.ID, "help").is_displayed())


def test_the_focus_is_seen(driver, page):
    driver.get(page.url)
    press(driver, "j")
    style = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"


def test_what_is_shown_is_copied(driver, page):
    permissions = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    driver.execute_cdp_cmd("Browser.grantPermissions", permissions)
    driver.get(f"{page.url}/topics/orders/records?by=offset&at=3&partition=0&count=2")
    button = driver.find_element(By.CSS_SELECTOR, "[data-copy]")
    button.click()
    until(driver, lambda: button.text == "Copied")
    text = driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert [json.loads(line)["offset"] for line in text.splitlines()] == [3, 4]


def tops(driver, selectors):
    """Where some elements begin, from above."""
    script = "return arguments[0].map((one) => document.querySelector(one).getBoundingClientRect().top)"
    return driver.execute_script(script, selectors)


def test_a_narrow_window(driver, page):
    driver.set_window_size(500, 800)
    try:
        driver.get(page.url + "/topics/orders/records")
        value, moment, key = tops(driver, [f"tbody {one}" for one in (".value", ".time", ".key")])
        assert value < min(moment, key)
        driver.get(page.url + "/groups")
        name, lag, topics = tops(driver, [f"tbody {one}" for one in ("th", ".lag", "[data-label=Members]")])
        assert name < lag <= topics
        for path in ("/", "/topics/orders", "/topics/orders/records", "/groups"):
            driver.get(page.url + path)
            width, room = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
            assert width <= room, path
    finally:
        driver.set_window_size(1280, 860)


def test_a_page_that_gets_no_answer_says_so(tmp_path, chromium):
    Store.create(tmp_path / "store").close()
    with shown(tmp_path / "store") as page:
        chromium.get(page.url)
        began = time.monotonic()
    until(chromium, lambda: "no answer" in chromium.find_element(By.ID, "fresh").text)
    assert time.monotonic() - began < PATIENCE
