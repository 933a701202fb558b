/** What the build makes of files beyond Vite: woff2 fonts alone, no rules of unused components, compressed copies. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";

import { parse } from "postcss";
import type { Plugin } from "vite";

const COMPRESSED = /\.(js|css|svg|html)$/;
const SMALLEST = 1000;
/** The fallbacks beside a woff2 in `src` of KaTeX's faces: every browser that the page runs in reads woff2. */
const OLDER_FONTS = /,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\("(?:woff|truetype)"\)/g;

export function woff2Only(): Plugin {
  return {
    name: "woff2-only",
    enforce: "pre",
    transform: (code, id) => (id.split("?")[0]?.endsWith(".css") ? { code: code.replace(OLDER_FONTS, ""), map: null } : null),
  };
}

/** micromark's TeX syntax brings a writer of HTML, which nobody here calls and which would take KaTeX along. */
export function withoutUnusedKatex(): Plugin {
  return {
    name: "without-unused-katex",
    enforce: "pre",
    resolveId: (source, importer) => (source === "katex" && importer?.includes("micromark-extension-math") ? "\0no-katex" : null),
    load: (id) => (id === "\0no-katex" ? "export default {}" : null),
  };
}

/**
 * The last steps, on the files as they are written: styles of used components only, `session.html` for an annotation
 * session's address, then a `.br` and a `.gz` of each. `session`: the sources of a session's pages.
 */
export function finishedFiles(session: string[]): Plugin {
  let folder = "";
  let written = false;
  return {
    name: "finished-files",
    apply: "build",
    configResolved(config) {
      folder = config.build.outDir;
    },
    writeBundle() {
      written = true;
    },
    async closeBundle() {
      if (!written) return; // the build failed, and says why
      await keepUsedStyles(folder);
      await writeSessionPage(folder, session);
      for (const path of await files(folder, COMPRESSED)) await compress(path);
    },
  };
}

/**
 * The component library's style sheet names each component's classes `m_` and a hash: those in no script are never set.
 * What is left depends on all scripts, so the sheet gets a name by it; only the page names it, which no browser keeps.
 */
async function keepUsedStyles(folder: string): Promise<void> {
  const page = join(folder, "index.html");
  const html = await readFile(page, "utf8");
  const sheet = /href="\/(assets\/[^"]+)\.css"/.exec(html)?.[1];
  const entry = /src="\/(assets\/[^"]+\.js)"/.exec(html)?.[1];
  if (sheet === undefined || entry === undefined) throw new Error("index.html names no style sheet or no script");
  const scripts = await Promise.all((await files(folder, /\.js$/)).map(async (path) => ({ path, code: await readFile(path, "utf8") })));
  const used = new Set(scripts.flatMap(({ code }) => code.match(/\bm_[0-9a-f]+/g) ?? []));
  const source = withRulesOf(used, await readFile(join(folder, `${sheet}.css`), "utf8"));
  const name = `assets/page-${createHash("sha256").update(source).digest("hex").slice(0, 8)}`;
  await rm(join(folder, `${sheet}.css`));
  await writeFile(join(folder, `${name}.css`), source);
  await writeFile(page, html.replace(`${sheet}.css`, `${name}.css`));
  // Pages' scripts list it among what they need: it is there before them, as is the page's own script.
  for (const { path, code } of scripts) if (code.includes(`${sheet}.css`)) await writeFile(path, code.replaceAll(`${sheet}.css`, entry));
}

function withRulesOf(used: Set<string>, source: string): string {
  const sheet = parse(source);
  sheet.walkRules((rule) => {
    const selectors = rule.selectors.filter((selector) => (withoutArguments(selector).match(/\bm_[0-9a-f]+/g) ?? []).every((name) => used.has(name)));
    if (selectors.length === 0) rule.remove();
    else if (selectors.length < rule.selectors.length) rule.selectors = selectors;
  });
  return sheet.toString();
}

/** A selector without what stands in parentheses: `:not(.m_1)` applies where there is no such component. */
function withoutArguments(selector: string): string {
  const outer = selector.replace(/\([^()]*\)/g, "");
  return outer === selector ? outer : withoutArguments(outer);
}

/** The page with all files of a session named in it: they come at once, and not one after the other asks for the next. */
async function writeSessionPage(folder: string, session: string[]): Promise<void> {
  const path = join(folder, ".vite", "manifest.json");
  const manifest = JSON.parse(await readFile(path, "utf8")) as Record<string, Built>;
  const needed = new Set<string>();
  const open = [...session];
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    const built = manifest[name];
    if (built === undefined) throw new Error(`the build has no ${name}`);
    if (needed.has(built.file)) continue;
    for (const file of [built.file, ...(built.css ?? [])]) needed.add(file);
    open.push(...(built.imports ?? []));
  }
  const html = await readFile(join(folder, "index.html"), "utf8");
  const links = [...needed]
    .filter((file) => !html.includes(file) && existsSync(join(folder, file)))
    .map((file) => (file.endsWith(".css") ? `<link rel="stylesheet" crossorigin href="/${file}">` : `<link rel="modulepreload" crossorigin href="/${file}">`));
  // Asked for at once, and taken by the page's first request. Nothing that takes a session: its refusal would be kept.
  const who = '<link rel="preload" as="fetch" crossorigin href="/api/session">';
  await writeFile(join(folder, "session.html"), html.replace("</head>", `  ${[...links, who].join("\n    ")}\n  </head>`));
  await rm(join(folder, ".vite"), { recursive: true });
}

interface Built {
  file: string;
  imports?: string[];
  css?: string[];
}

async function files(folder: string, kind: RegExp): Promise<string[]> {
  return (await readdir(folder, { recursive: true })).filter((name) => kind.test(name)).map((name) => join(folder, name));
}

async function compress(path: string): Promise<void> {
  const content = await readFile(path);
  if (content.length < SMALLEST) return;
  const params = { [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
  await writeFile(`${path}.br`, await promisify(brotliCompress)(content, { params }));
  await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: 9 }));
}
