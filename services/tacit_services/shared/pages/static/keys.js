// An analyst's key in the browser: made here and never to be read out (WebCrypto, non-extractable, IndexedDB), or
// read from a file for one signature. Requests carry signatures; no private key is in any of them. What is signed
// is shown from the very bytes: their digest is computed here, and they must say what was written in the form.
"use strict";
(() => {
  const ED25519 = { name: "Ed25519" };
  const TOKEN_LIFE_S = 60;
  const ASKED = "tacit-asked";
  const element = (id) => document.getElementById(id);
  const tell = (words) => { element("told").textContent = words; };

  class Refusal extends Error {}

  // Bytes and texts.

  const utf8 = (text) => new TextEncoder().encode(text);
  const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
  const base64 = (bytes) => btoa(Array.from(new Uint8Array(bytes), (byte) => String.fromCharCode(byte)).join(""));
  const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const base64url = (bytes) => base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

  // The key that this browser keeps for a tester: {audience, name, key, pair, enrolled}.

  const database = () => new Promise((resolve, reject) => {
    const opening = indexedDB.open("tacit", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys", { keyPath: "audience" });
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(new Refusal("This browser lets no page keep a key (a private window?)."));
  });
  const inStore = async (mode, act) => {
    const opened = await database();
    try {
      return await new Promise((resolve, reject) => {
        const request = act(opened.transaction("keys", mode).objectStore("keys"));
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(new Refusal("This browser could not keep the key."));
      });
    } finally { opened.close(); }
  };
  const kept = (audience) => inStore("readonly", (store) => store.get(audience));
  const keep = (record) => inStore("readwrite", (store) => store.put(record));

  const requireCrypto = () => {
    if (!window.isSecureContext || !window.crypto?.subtle) {
      throw new Refusal("Browsers sign over https alone (or on the tester's own machine): use the command.");
    }
  };

  // What is signed: a request's token (RFC 7519), and an envelope (DSSE).

  const sign = async (privateKey, message) => new Uint8Array(await crypto.subtle.sign(ED25519, privateKey, message));
  const token = async (privateKey, key, audience) => {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: key, aud: audience, iat: now, exp: now + TOKEN_LIFE_S,
      jti: hex(crypto.getRandomValues(new Uint8Array(16))) };
    const parts = [{ alg: "EdDSA", typ: "JWT" }, claims].map((part) => base64url(utf8(JSON.stringify(part))));
    const text = parts.join(".");
    return `${text}.${base64url(await sign(privateKey, utf8(text)))}`;
  };
  const preAuthentication = (type, payload) => {
    const head = utf8(`DSSEv1 ${utf8(type).length} ${type} ${payload.length} `);
    const whole = new Uint8Array(head.length + payload.length);
    whole.set(head);
    whole.set(payload, head.length);
    return whole;
  };
  const send = async (method, path, bearer, body) => {
    const answer = await fetch(path, {
      method, body, mode: "same-origin", credentials: "omit", redirect: "error", cache: "no-store",
      headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    });
    const found = await answer.json();
    if (!answer.ok) {
      throw new Refusal([found.title, found.detail, found.advice].filter(Boolean).join(". ") || "It was refused.");
    }
    return found;
  };

  // Do what a button says, once at a time, and say what went wrong.
  const onPress = (id, act) => element(id)?.addEventListener("click", async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try { await act(); } catch (error) {
      tell(error instanceof Refusal ? error.message : `It did not work (${error.name}): use the command.`);
    } finally { button.disabled = false; }
  });

  // The page of the browser's own key.

  const signIn = async ({ audience, key, pair }, root) => {
    const link = await send("POST", `${root}/v1/sign-in-links`, await token(pair.privateKey, key, audience), "{}");
    if (!/^\/sign-in\?link=[A-Za-z0-9_-]{20,100}$/.test(link.path)) { throw new Refusal("That is no link."); }
    location.assign(root + link.path);
  };
  const keyPage = async (page) => {
    const { audience, root } = page.dataset;
    requireCrypto();
    let record = await kept(audience);
    const show = () => {
      element("known").hidden = !record?.enrolled;
      element("unknown").hidden = Boolean(record?.enrolled);
      if (record) {
        element("known-key").textContent = record.key.slice(0, 12);
        element("known-name").textContent = record.name;
      }
    };
    show();
    onPress("sign-in", () => signIn(record, root));
    onPress("enrol", async () => {
      const name = element("enrol-name").value.trim();
      const invitation = element("enrol-invitation").value.trim();
      if (!name || !invitation) { throw new Refusal("Write the name and the invitation."); }
      if (!record) {
        const pair = await crypto.subtle.generateKey(ED25519, false, ["sign", "verify"]);
        record = { audience, pair, key: hex(await crypto.subtle.exportKey("raw", pair.publicKey)) };
      }
      record = { ...record, name, enrolled: false };
      await keep(record);  // before it is enrolled: an enrolled key that nobody has helps nobody
      const asked = { invitation, key: record.key, name, role: "analyst" };
      const bearer = await token(record.pair.privateKey, record.key, audience);
      await send("POST", `${root}/v1/enrolments`, bearer, JSON.stringify(asked));
      record = { ...record, enrolled: true };
      await keep(record);
      await navigator.storage?.persist?.();
      await signIn(record, root);
    });
  };

  // The page that signs.

  const rows = function* (value, path) {
    if (value === null || typeof value !== "object" || Object.keys(value).length === 0) {
      yield [path, typeof value === "object" ? "–" : String(value)];
    } else if (Array.isArray(value) && value.every((part) => part === null || typeof part !== "object")) {
      yield [path, value.join(", ")];
    } else {
      for (const [name, part] of Object.entries(value)) {
        const step = Array.isArray(value) ? String(Number(name) + 1) : name.replaceAll("_", " ");
        yield* rows(part, path ? `${path} › ${step}` : step);
      }
    }
  };
  const show = (study) => {
    for (const [path, text] of rows(study, "")) {
      const row = element("signed-fields").insertRow();
      const name = document.createElement("th");
      name.scope = "row";
      const own = document.createElement("bdi"), said = document.createElement("bdi");
      own.textContent = path;
      said.textContent = text;
      name.append(own);
      row.append(name);
      row.insertCell().append(said);
    }
  };

  // What was written in the form, as this browser saw it when the form left.
  const remember = (form) => form.addEventListener("submit", () => {
    const said = (name) => form.elements.namedItem(name)?.value.trim() ?? "";
    const asked = [...form.elements].filter((field) => /^ask-\d+$/.test(field.name)
      && (field.type !== "checkbox" || field.checked)).map((field) => field.name.slice(4));
    sessionStorage.setItem(ASKED, JSON.stringify({
      title: said("title"), epsilon: said("epsilon"), delta: said("delta"), level: said("level"),
      owners: asked.map((number) => `${said(`owner-${number}`)}/${said(`data_set-${number}`)}`),
    }));
  });
  const requireAsWritten = (study) => {
    const asked = JSON.parse(sessionStorage.getItem(ASKED) ?? "null");
    if (!asked) { throw new Refusal("This page was not reached from the form in this window: start again there."); }
    const owners = study.owners.map((owner) => `${owner.name}/${owner.data_set}`);
    const same = study.title === asked.title.normalize("NFC")
      && study.budget.epsilon_micro === Math.round(Number(asked.epsilon) * 1e6)
      && Math.abs(study.budget.delta_pico - Number(asked.delta) * 1e12) <= 1
      && study.level === Number(asked.level)
      && JSON.stringify(owners) === JSON.stringify(asked.owners);
    if (!same) { throw new Refusal("The study is not what you wrote in the form: nothing is signed."); }
  };

  const signingPage = async (page) => {
    const { type, digest, analyst, audience, put, done } = page.dataset;
    requireCrypto();
    const payload = fromBase64(page.dataset.payload);
    if (hex(await crypto.subtle.digest("SHA-256", payload)) !== digest) {
      throw new Refusal("The study's bytes have another digest than the page says: nothing is signed.");
    }
    const study = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
    show(study);
    if (study.analyst.key !== analyst || !put.endsWith(`/v1/studies/${digest}`)) {
      throw new Refusal("The study names another analyst than the page says: nothing is signed.");
    }
    requireAsWritten(study);
    const signAndSend = async (privateKey) => {
      const message = preAuthentication(type, payload);
      const signature = await sign(privateKey, message);
      const known = await crypto.subtle.importKey("raw", fromHex(analyst), ED25519, true, ["verify"]);
      if (!await crypto.subtle.verify(ED25519, known, signature, message)) {
        throw new Refusal("That is another key than the one you are enrolled and signed in with.");
      }
      const envelope = { payload: base64(payload), payloadType: type,
        signatures: [{ keyid: analyst, sig: base64(signature) }] };
      tell("Signed. Sending …");
      await send("PUT", put, await token(privateKey, analyst, audience), JSON.stringify(envelope));
      sessionStorage.removeItem(ASKED);
      location.assign(done);
    };
    page.querySelector("[data-needs-script]").hidden = false;
    onPress("sign-file", async () => {
      const input = element("key-file"), [file] = input.files;
      if (!file) { throw new Refusal("Choose the key file."); }
      const pem = /-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/.exec(await file.text());
      input.value = "";
      let privateKey;
      try {
        privateKey = await crypto.subtle.importKey(
          "pkcs8", fromBase64(pem[1].replaceAll(/\s/g, "")), ED25519, false, ["sign"]);
      } catch { throw new Refusal("That file holds no Ed25519 private key in PEM."); }
      await signAndSend(privateKey);
    });
    const record = await kept(audience).catch(() => undefined);
    if (record?.key === analyst) {
      element("browser-key").textContent = `The key ${analyst.slice(0, 12)} that this browser keeps.`;
      element("sign-here").hidden = false;
      onPress("sign-here", () => signAndSend(record.pair.privateKey));
    }
  };

  const start = async (found, act) => {
    try { await act(found); } catch (error) {
      tell(error instanceof Refusal ? error.message : `This browser cannot do it (${error.name}): use the command.`);
    }
  };
  document.querySelectorAll("form[data-asked]").forEach(remember);
  document.querySelectorAll("[data-signing]").forEach((found) => start(found, signingPage));
  document.querySelectorAll("#browser-keys").forEach((found) => start(found, keyPage));
})();
