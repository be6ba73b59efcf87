// What pages do beside being read: they stay current, and send changes to the API after asking.

const prefix = document.documentElement.dataset.prefix;
// The address without a login that it may contain: with one, the browser refuses to send.
const api = (path, at = prefix) => `${location.origin}${at}/api/v1${path}`;
const here = location.pathname + location.search;
const EVERY_MS = 5000;

// ---- messages and questions

let fades;

function say(text, failed = false) {
  const message = document.getElementById("message");
  message.textContent = text;
  clearTimeout(fades);
  if (!failed) fades = setTimeout(() => { message.hidden = true; }, 8000);
  message.classList.toggle("failed", failed);
  message.hidden = text === "";
}

const inWords = (jobs) => (jobs === 1 ? "1 job" : `${jobs.toLocaleString("en")} jobs`);

function ask(question) {
  const dialog = document.getElementById("confirm");
  document.getElementById("question").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

// ---- requests

// `at` is the prefix of a row of another namespace than the page's: a name would be looked up in the wrong one.
async function send(method, path, body, at) {
  const response = await fetch(api(path, at), { method, body });
  if (response.status === 401) location.reload();
  const text = await response.text();
  const isJson = (response.headers.get("Content-Type") ?? "").includes("json");
  const answer = isJson && text !== "" ? JSON.parse(text) : {};
  if (!response.ok) throw new Error(answer.detail ?? `${response.status} ${response.statusText}`);
  return { ...answer, isNew: response.status === 201 };
}

// Runs a change, reports how it ended, and shows the result.
async function run(change) {
  let isDone = false;
  try {
    say("…");
    const done = await change();
    isDone = true;
    say(done ?? "Done.");
  } catch (error) {
    say(error.message, true);
  }
  // A daemon that has been drained is gone.
  await refresh(true, isDone).catch(() => {});
  await countMatches().catch(() => {});
}

// What a change has done, for people.
function outcome({ name, isNew, changed, left, applied, needs_restart: restart }) {
  if (isNew && name !== undefined) return `${name} is new: no client has used this queue yet.`;
  if (left !== undefined) return `${inWords(changed)} moved, ${left} left.`;
  if (changed !== undefined) return `${inWords(changed)}.`;
  if (applied === undefined) return undefined;
  const keys = [...applied.map((key) => `${key}: applied`), ...restart.map((key) => `${key}: needs a restart`)];
  return keys.length === 0 ? "Nothing has changed." : `${keys.join("; ")}.`;
}

// A change of many jobs goes on where each answer ends.
async function many(change, query, isDryRun, each) {
  let changed = 0;
  let cursor = null;
  let delay = null;
  do {
    const parameters = new URLSearchParams(query);
    if (query === "") parameters.set("all", "true");
    if (delay !== null) parameters.set("delay_ms", delay);
    if (isDryRun) parameters.set("dry_run", "true");
    if (cursor !== null) parameters.set("cursor", cursor);
    const answer = await send("POST", `/jobs/${change}?${parameters}`);
    changed += answer.changed;
    cursor = answer.next;
    delay = answer.delay_ms ?? null;
    each(changed);
  } while (cursor !== null);
  return changed;
}

// ---- staying current

// What the daemon sent last, before moments were put in the reader's own time: only what has changed since is replaced.
const shown = [...document.querySelectorAll("[data-live]")].map((part) => part.innerHTML);
let seenAt = new Date();

const isBusy = () => document.querySelector("dialog[open], .menu[open]") !== null || document.querySelector("[data-id]:checked") !== null;

// Fails if the daemon does not answer in time, or a proxy answers for it. Parts that a person has at hand stay, unless forced.
// Forms that are filled with settings change only with a change that was made: what is typed in them must not get lost.
async function refresh(isForced = false, isDone = false) {
  const headers = { Accept: "text/html", "X-Windlass-Refresh": "1" };
  const signal = AbortSignal.timeout(EVERY_MS);
  const response = await fetch(location.origin + here, { headers, redirect: "manual", signal });
  if (response.status >= 500) throw new Error(`${response.status} ${response.statusText}`);
  if (!response.ok) {
    // The session has ended, and the answer leads to the form.
    if (response.status === 404 || response.status === 401 || response.type === "opaqueredirect") location.reload();
    return;
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (isBusy() && !isForced) return;
  const fresh = page.querySelectorAll("[data-live]");
  document.querySelectorAll("[data-live]").forEach((old, index) => {
    if (fresh[index] === undefined || shown[index] === fresh[index].innerHTML) return;
    shown[index] = fresh[index].innerHTML;
    old.innerHTML = shown[index];
  });
  const filled = isDone ? page.querySelectorAll("[data-filled]") : [];
  document.querySelectorAll("[data-filled]").forEach((old, index) => {
    if (filled[index] !== undefined) old.innerHTML = filled[index].innerHTML;
  });
  for (const count of document.querySelectorAll("[data-count-of]")) {
    count.textContent = page.querySelector(`[data-count-of=${count.dataset.countOf}]`)?.textContent ?? "";
  }
  tidy();
}

// Shows whether the daemon answers. Figures that it does not confirm are grey.
function reach(isThere) {
  if (isThere) seenAt = new Date();
  document.body.classList.toggle("stale", !isThere);
  let lost = document.querySelector(".lost");
  if (isThere) return lost?.remove();
  if (lost === null) {
    lost = document.createElement("p");
    lost.className = "lost";
    lost.setAttribute("role", "alert");
    document.body.prepend(lost);
  }
  lost.textContent = `No answer since ${seenAt.toLocaleTimeString("sv")}`;
}

// The daemon's events say when to look again, once a second at most. Without them the page looks every few seconds.
let isDue = false;
let lookedAt = Date.now();
let isLooking = false;

let events = null;

// A browser has few connections for one place: a page that nobody sees gives its own away.
function follow() {
  events?.close();
  events = null;
  if (document.hidden) return;
  events = new EventSource(api("/events"));
  for (const kind of ["job", "queue", "worker", "missed"]) events.addEventListener(kind, () => { isDue = true; });
  events.onopen = () => { isDue = document.body.classList.contains("stale"); };
  // The browser tries a lost connection again by itself; the next look shows whether the daemon is there.
  events.onerror = ({ target }) => { if (target.readyState === EventSource.CONNECTING) isDue = true; };
}

async function look() {
  const since = Date.now() - lookedAt;
  const isWanted = (isDue && since >= 1000 && !isBusy()) || since >= EVERY_MS;
  if (isLooking || !isWanted || document.hidden || !document.getElementById("live")?.checked) return;
  [isLooking, isDue, lookedAt] = [true, false, Date.now()];
  try {
    await refresh();
    reach(true);
    // A stream that was refused is not tried again by the browser.
    if (events?.readyState === EventSource.CLOSED) follow();
  } catch {
    reach(false);
  }
  isLooking = false;
}

// Moments as spans from now in words; the exact one, in the reader's own zone, is in the title.
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function span(seconds) {
  const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) ?? ["s", 1];
  const text = `${Math.floor(Math.abs(seconds) / size)} ${unit}`;
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

function tidy() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.valueOf())) {
      time.title = at.toLocaleString("sv", { timeZoneName: "short" });
      time.textContent = span((at - Date.now()) / 1000);
    }
  }
  count();
}

// ---- selections

const selected = () => [...document.querySelectorAll("[data-id]:checked")].map((box) => box.dataset.id);

function count() {
  const bulk = document.querySelector("[data-bulk]");
  if (bulk === null) return;
  const matches = bulk.querySelector("[data-match]")?.checked ?? false;
  const jobs = selected().length;
  bulk.querySelector("[data-count]").textContent = matches ? bulk.querySelector("[data-matching]").textContent : jobs === 0 ? "nothing selected" : `${jobs} selected`;
  bulk.classList.toggle("idle", !matches && jobs === 0);
  bulk.querySelectorAll("[data-change], [data-again]").forEach((button) => { button.disabled = !matches && jobs === 0; });
}

// Counts the jobs that match, beside the box that stands for all of them. The daemon bounds the search.
async function countMatches() {
  const bulk = document.querySelector("[data-bulk]:has([data-match])");
  if (bulk === null) return;
  const { jobs, is_complete: isComplete } = await send("GET", `/jobs/count?${bulk.dataset.bulk}`);
  const number = jobs.toLocaleString("en");
  bulk.querySelector("[data-matching]").textContent = isComplete ? `all ${number} that match` : `all that match, at least ${number}`;
  const total = document.querySelector("[data-total]");
  if (total !== null) total.textContent = `${isComplete ? "" : "at least "}${inWords(jobs)}:`;
  count();
}

async function changeMany(button) {
  const bulk = button.closest("[data-bulk]");
  const change = button.dataset.change ?? button.dataset.many;
  const matches = bulk === null || bulk.querySelector("[data-match]").checked;
  const all = bulk === null ? button.dataset.query : bulk.dataset.bulk;
  const how = change !== "retry" ? [] : [...document.querySelectorAll("[data-retry]")].filter((field) => field.value !== "");
  const given = how.map((field) => `&${field.dataset.retry}=${encodeURIComponent(field.value)}`).join("");
  const query = (matches ? all : new URLSearchParams({ ids: selected().join(",") }).toString()) + given;
  const verb = button.dataset.verb ?? button.textContent;
  let jobs;
  try {
    jobs = await many(change, query, true, (so_far) => say(`Counting: ${so_far}`));
  } catch (error) {
    return say(error.message, true);
  }
  say("");
  if (jobs === 0) return say(`${verb}: no job is in a state that allows this.`);
  const which = matches && jobs > 1 ? `all ${inWords(jobs)} that match` : inWords(jobs);
  if (!(await ask(`${verb} ${which}?${change === "delete" ? (jobs === 1 ? " It is lost." : " They are lost.") : ""}`))) return;
  await run(async () => {
    const changed = await many(change, query, false, (so_far) => say(`${verb}: ${so_far} of ${jobs}`));
    document.querySelectorAll("[data-id]:checked, [data-all]:checked, [data-match]:checked").forEach((box) => { box.checked = false; });
    return `${verb}: ${inWords(changed)}.`;
  });
}

// Pushes the selected jobs of the history once more, those that ended first before the others. One that is refused stops no other.
async function runAgain() {
  const ids = selected().reverse();
  const rate = Number(document.querySelector("[data-rate]").value);
  const speed = rate > 0 ? `, ${rate} a second` : "";
  if (!(await ask(`Push ${inWords(ids.length)} once more${speed}?`))) return;
  await run(async () => {
    let pushed = 0;
    const refused = [];
    for (const id of ids) {
      const delay = rate > 0 ? Math.floor((pushed * 1000) / rate) : 0;
      try {
        await send("POST", `/ended/${encodeURIComponent(id)}/again?delay_ms=${delay}`);
        pushed += 1;
      } catch (error) {
        refused.push(error.message);
      }
      say(`Run again: ${pushed} of ${ids.length}`);
    }
    document.querySelectorAll("[data-id]:checked, [data-all]:checked").forEach((box) => { box.checked = false; });
    return `Run again: ${inWords(pushed)}.${refused.length > 0 ? ` ${refused.length} refused: ${refused[0]}` : ""}`;
  });
}

// A work unit of FWP. What the reader has written in JSON stays as it is: numbers may have more digits than a script keeps.
function unit(fields) {
  const rest = fields.get("rest").trim().replace(/^\{|\}$/g, "").trim();
  const texts = ["jobtype", "at"].map((name) => [name, fields.get(name) && JSON.stringify(fields.get(name))]);
  const members = [...texts, ...["args", "custom", "priority"].map((name) => [name, fields.get(name)])];
  const given = members.filter(([, value]) => value.trim() !== "").map(([name, value]) => `"${name}":${value}`);
  return `{${[...(rest === "" ? [] : [rest]), ...given].join(",")}}`;
}

// ---- events

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.change !== undefined || button?.dataset.many !== undefined) return changeMany(button);
  if (button?.dataset.again !== undefined) return runAgain();
  if (button?.dataset.send === undefined) return;
  const [method, path] = button.dataset.send.split(" ");
  if (button.dataset.confirm !== undefined && !(await ask(button.dataset.confirm))) return;
  const at = button.closest("[data-prefix]").dataset.prefix;
  await run(async () => outcome(await send(method, path, undefined, at)));
});

document.addEventListener("change", (event) => {
  if (event.target.dataset.all !== undefined) {
    document.querySelectorAll("[data-id]").forEach((box) => { box.checked = event.target.checked; });
  }
  if (event.target.dataset.match !== undefined) countMatches().catch((error) => say(error.message, true));
  count();
});

// The policy in a form. The name of a field is its place in the policy, and an empty one is not given.
function policyOf(form) {
  const policy = {};
  const set = (place, value) => {
    const names = place.split(".");
    const last = names.pop();
    names.reduce((part, name) => (part[name] ??= {}), policy)[last] = value;
  };
  for (const field of form.querySelectorAll("input[name]:not([name=place]):not([name=split])")) {
    if (field.type === "checkbox") {
      if (field.checked) set(field.name, true);
    } else if (field.value !== "") set(field.name, field.type === "number" ? Number(field.value) : field.value);
  }
  const { key, place, split, weights } = form.elements;
  if (key.value !== "") policy.key = { [key.value]: key.value === "unique" ? true : place.value };
  if (key.value === "unique" && split.value !== "") policy.key.split = split.value;
  for (const line of weights.value.split("\n").filter((line) => line.trim() !== "")) {
    const at = line.lastIndexOf("=");
    (policy.weights ??= {})[line.slice(0, Math.max(at, 0)).trim()] = Number(line.slice(at + 1));
  }
  return JSON.stringify(policy);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const fields = new FormData(form);
  const given = (values) => new URLSearchParams([...values].filter(([, value]) => value !== ""));
  if (form.dataset.push !== undefined) {
    event.preventDefault();
    const queue = fields.get("queue");
    const body = form.dataset.push === "unit" ? unit(fields) : fields.get("body");
    ["queue", "body"].forEach((name) => fields.delete(name));
    const terms = form.dataset.push === "unit" ? "protocol=faktory" : given(fields);
    run(async () => {
      const { id } = await send("POST", `/queues/${encodeURIComponent(queue)}/jobs?${terms}`, body);
      location.assign(`${prefix}/jobs/${id}`);
    });
  }
  if (form.dataset.queue === undefined) return;
  event.preventDefault();
  // The page of one queue has its name; elsewhere it is a field.
  const queue = encodeURIComponent(form.dataset.queue || fields.get("queue"));
  const isPolicy = form.dataset.policy !== undefined;
  const body = isPolicy ? policyOf(form) : undefined;
  fields.delete("queue");
  const [method, setting] = event.submitter.dataset.set.split(" ");
  const values = method !== "DELETE" && !isPolicy ? given(fields) : "";
  run(async () => outcome(await send(method, `/queues/${queue}/${setting}?${values}`, body)));
});

// ---- keys

const rows = () => [...document.querySelectorAll("tr[data-row]")];

function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.classList.contains("current"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  all[at]?.classList.remove("current");
  next?.classList.add("current");
  next?.scrollIntoView({ block: "nearest" });
  next?.querySelector("a")?.focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog") !== null) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const current = document.querySelector("tr.current");
  const actions = {
    "/": () => document.querySelector("[role=search] input").focus(),
    "?": () => document.getElementById("keys").showModal(),
    j: () => move(1),
    k: () => move(-1),
    x: () => current?.querySelector("[data-id]")?.click(),
  };
  if (actions[event.key] === undefined) return;
  event.preventDefault();
  actions[event.key]();
});

// ---- plots: the values under the pointer

document.addEventListener("pointermove", (event) => {
  document.querySelectorAll(".cursor, .tip").forEach((it) => it.remove());
  const plot = event.target.closest?.(".plot");
  if (plot === null || plot === undefined) return;
  const { names, values, times } = JSON.parse(plot.dataset.plot);
  const box = plot.querySelector("svg").getBoundingClientRect();
  const part = (event.clientX - box.left) / box.width;
  if (part < 0 || part > 1 || times.length === 0) return;
  const index = Math.round(part * (times.length - 1));
  const x = box.left - plot.getBoundingClientRect().left + (index / Math.max(times.length - 1, 1)) * box.width;
  const cursor = Object.assign(document.createElement("span"), { className: "cursor" });
  const tip = Object.assign(document.createElement("span"), { className: "tip" });
  tip.textContent = [times[index], ...names.map((name, line) => `${name} ${values[line][index]}`)].join(" · ");
  plot.append(cursor, tip);
  cursor.style.left = `${x}px`;
  tip.style.left = `${Math.max(0, Math.min(x + 8, plot.clientWidth - tip.clientWidth - 4))}px`;
});

// ---- the beginning

const links = [...document.querySelectorAll("nav a")];
const path = location.pathname;
const at = (link) => link.getAttribute("href");
const current = links.find((link) => at(link) === path) ?? links.find((link) => at(link) !== `${prefix}/` && path.startsWith(`${at(link)}/`));
current?.setAttribute("aria-current", "page");
// On narrow screens the links are one line, which scrolls.
if (current !== undefined) current.parentElement.scrollLeft = current.offsetLeft - 40;
tidy();
countMatches().catch(() => {});
// The way back leads to the page before the search.
const next = document.querySelector("[data-goes-on]") === null ? null : document.querySelector("a[rel=next]");
if (next !== null) location.replace(next.href);
if (document.querySelector("[data-live]") !== null) {
  follow();
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", () => events?.close());
  addEventListener("pageshow", (event) => event.persisted && follow());
  setInterval(look, 500);
}
