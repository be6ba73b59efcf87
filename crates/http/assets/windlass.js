// What pages do beside being read: they stay current, and send changes to the API after asking.

const prefix = document.documentElement.dataset.prefix;
// The address without a login that it may contain: with one, the browser refuses to send.
const api = (path) => `${location.origin}${prefix}/api/v1${path}`;
const here = location.pathname + location.search;
const EVERY_MS = 5000;

// ---- messages and questions

function say(text, failed = false) {
  const message = document.getElementById("message");
  message.textContent = text;
  message.classList.toggle("failed", failed);
  message.hidden = text === "";
}

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

async function send(method, path) {
  const response = await fetch(api(path), { method });
  if (response.status === 401) location.reload();
  const text = await response.text();
  const isJson = (response.headers.get("Content-Type") ?? "").includes("json");
  const answer = isJson && text !== "" ? JSON.parse(text) : {};
  if (!response.ok) throw new Error(answer.detail ?? `${response.status} ${response.statusText}`);
  return { ...answer, isNew: response.status === 201 };
}

// Runs a change, reports how it ended, and shows the result.
async function run(change) {
  try {
    say("…");
    const done = await change();
    say(done ?? "Done.");
  } catch (error) {
    say(error.message, true);
  }
  // A daemon that has been drained is gone.
  await refresh().catch(() => {});
  await countMatches().catch(() => {});
}

// What a change has done, for people.
function outcome({ name, isNew, changed, applied, needs_restart: restart }) {
  if (isNew && name !== undefined) return `${name} is new: no client has used this queue yet.`;
  if (changed !== undefined) return `${changed} jobs.`;
  if (applied === undefined) return undefined;
  const keys = [...applied.map((key) => `${key}: applied`), ...restart.map((key) => `${key}: needs a restart`)];
  return keys.length === 0 ? "Nothing has changed." : `${keys.join("; ")}.`;
}

// A change of many jobs goes on where each answer ends.
async function many(change, query, isDryRun, each) {
  let changed = 0;
  let cursor = null;
  do {
    const parameters = new URLSearchParams(query);
    if (query === "") parameters.set("all", "true");
    if (isDryRun) parameters.set("dry_run", "true");
    if (cursor !== null) parameters.set("cursor", cursor);
    const answer = await send("POST", `/jobs/${change}?${parameters}`);
    changed += answer.changed;
    cursor = answer.next;
    each(changed);
  } while (cursor !== null);
  return changed;
}

// ---- staying current

// What the daemon sent last, before moments were put in the reader's own time: only what has changed since is replaced.
const shown = [...document.querySelectorAll("[data-live]")].map((part) => part.innerHTML);

const isBusy = () => document.querySelector("dialog[open]") !== null || document.querySelector("[data-id]:checked") !== null;

async function refresh() {
  const headers = { Accept: "text/html", "X-Windlass-Refresh": "1" };
  const response = await fetch(location.origin + here, { headers, redirect: "manual" });
  if (!response.ok) {
    // The session has ended, and the answer leads to the form.
    if (response.status === 404 || response.status === 401 || response.type === "opaqueredirect") location.reload();
    return;
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.querySelectorAll("[data-live]");
  document.querySelectorAll("[data-live]").forEach((old, index) => {
    if (fresh[index] === undefined || shown[index] === fresh[index].innerHTML) return;
    shown[index] = fresh[index].innerHTML;
    old.innerHTML = shown[index];
  });
  tidy();
}

// Moments in the reader's own time; the exact one is in the title.
function tidy() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.valueOf())) {
      time.title = time.dateTime;
      time.textContent = at.toLocaleString();
    }
  }
  count();
}

// ---- selections

const selected = () => [...document.querySelectorAll("[data-id]:checked")].map((box) => box.dataset.id);

function count() {
  const bulk = document.querySelector("[data-bulk]");
  if (bulk === null) return;
  const matches = bulk.querySelector("[data-match]").checked;
  const jobs = selected().length;
  bulk.querySelector("[data-count]").textContent = matches ? bulk.querySelector("[data-matching]").textContent : jobs === 0 ? "nothing selected" : `${jobs} selected`;
  bulk.querySelectorAll("[data-change]").forEach((button) => { button.disabled = !matches && jobs === 0; });
}

// Counts the jobs that match, beside the box that stands for all of them. The daemon bounds the search.
async function countMatches() {
  const bulk = document.querySelector("[data-bulk]");
  if (bulk === null) return;
  const { jobs, is_complete: isComplete } = await send("GET", `/jobs/count?${bulk.dataset.bulk}`);
  const number = jobs.toLocaleString("en");
  bulk.querySelector("[data-matching]").textContent = isComplete ? `all ${number} that match` : `all that match, at least ${number}`;
  count();
}

async function changeMany(button) {
  const bulk = button.closest("[data-bulk]");
  const change = button.dataset.change;
  const matches = bulk.querySelector("[data-match]").checked;
  const query = matches ? bulk.dataset.bulk : new URLSearchParams({ ids: selected().join(",") }).toString();
  const verb = button.textContent;
  let jobs;
  try {
    jobs = await many(change, query, true, (so_far) => say(`Counting: ${so_far}`));
  } catch (error) {
    return say(error.message, true);
  }
  say("");
  if (jobs === 0) return say(`${verb}: no job is in a state that allows this.`);
  const which = matches ? `all ${jobs} jobs that match` : `${jobs} jobs`;
  if (!(await ask(`${verb} ${which}?${change === "delete" ? " They are lost." : ""}`))) return;
  await run(async () => {
    const changed = await many(change, query, false, (so_far) => say(`${verb}: ${so_far} of ${jobs}`));
    document.querySelectorAll("[data-id]:checked, [data-all]:checked, [data-match]:checked").forEach((box) => { box.checked = false; });
    return `${verb}: ${changed} jobs.`;
  });
}

// ---- events

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.change !== undefined) return changeMany(button);
  if (button?.dataset.send === undefined) return;
  const [method, path] = button.dataset.send.split(" ");
  if (button.dataset.confirm !== undefined && !(await ask(button.dataset.confirm))) return;
  await run(async () => outcome(await send(method, path)));
});

document.addEventListener("change", (event) => {
  if (event.target.dataset.all !== undefined) {
    document.querySelectorAll("[data-id]").forEach((box) => { box.checked = event.target.checked; });
  }
  if (event.target.dataset.match !== undefined) countMatches().catch((error) => say(error.message, true));
  count();
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.queue === undefined) return;
  event.preventDefault();
  const fields = new FormData(form);
  // The page of one queue has its name; elsewhere it is a field.
  const queue = encodeURIComponent(form.dataset.queue || fields.get("queue"));
  fields.delete("queue");
  const [method, setting] = event.submitter.dataset.set.split(" ");
  // Only a PUT has values.
  const values = method === "PUT" ? new URLSearchParams([...fields].filter(([, value]) => value !== "")) : "";
  run(async () => outcome(await send(method, `/queues/${queue}/${setting}?${values}`)));
});

const links = [...document.querySelectorAll("header nav a")];
const current = links.find((link) => link.getAttribute("href") === here) ?? links.find((link) => link.getAttribute("href") === location.pathname);
current?.setAttribute("aria-current", "page");
tidy();
countMatches().catch(() => {});
setInterval(() => {
  if (document.getElementById("live").checked && !document.hidden && !isBusy()) refresh().catch(() => {});
}, EVERY_MS);
