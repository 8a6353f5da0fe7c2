// What a person may do to the run with `paceline watch --control`. The server asks back each time, and so does the page.
"use strict";

const controls = { asked: null };

async function post(order) {
  const answer = await fetch("/control", {
    method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify(order),
  });
  const told = await answer.json().catch(() => ({ error: "The page has refused." }));
  if (!answer.ok) throw new Error(told.error);
  return told;
}

function sayControl(text) { set("control-said", text); }

async function ask(order) {
  try {
    const told = await post(order);
    controls.asked = { ...order, confirm: told.confirm };
    set("ask-sentence", told.sentence);
    $("ask").showModal();
    $("ask-no").focus();
  } catch (error) { sayControl(error.message); }
}

$("ask-yes").addEventListener("click", async () => {
  const order = controls.asked;
  $("ask").close();
  if (!order) return;
  controls.asked = null;
  try {
    await post(order);
    sayControl("The run has been asked; what became of it is among the events.");
  } catch (error) { sayControl(error.message); }
});
$("ask-no").addEventListener("click", () => $("ask").close());

for (const button of document.querySelectorAll("button[data-order]")) {
  button.addEventListener("click", () => {
    const order = { kind: button.dataset.order };
    if (order.kind === "learning-rate") order.factor = Number($("factor").value);
    if (order.kind === "expel" || order.kind === "drain") order.rank = page.worker;
    ask(order);
  });
}

function showControls(state) {
  const can = Boolean(page.about && page.about.control) && !state.ended;
  $("controls").hidden = !can;
  $("own-controls").hidden = !can || !state.worker || !state.worker.row.here;
}
