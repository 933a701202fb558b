/** What the build makes of files beyond Vite: woff2 fonts alone, no rules of unused components, compressed copies. */
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
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
    transform(code, id) {
      return id.split("?")[0]?.endsWith(".css") && OLDER_FONTS.test(code) ? { code: code.replace(OLDER_FONTS, ""), map: null } : null;
    },
  };
}

/**
 * The component library's style sheet names each component's classes `m_` and a hash: those in no script are never set.
 * The sheet gets a name by what is left, which depends on the scripts and not on its source alone.
 */
export function usedStylesOnly(): Plugin {
  return {
    name: "used-styles-only",
    enforce: "post",
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const scripts = files.map((file) => (file.type === "chunk" ? file.code : "")).join("\n");
      const used = new Set(scripts.match(/\bm_[0-9a-f]+/g));
      for (const file of files) {
        if (file.type !== "asset" || !file.fileName.endsWith(".css") || !/\.m_[0-9a-f]/.test(Buffer.from(file.source).toString())) continue;
        if (scripts.includes(file.fileName)) throw new Error(`${file.fileName} is loaded by a script, so it keeps its name`);
        const source = withRulesOf(used, Buffer.from(file.source).toString());
        const digest = createHash("sha256").update(source).digest("base64url").slice(0, 8);
        const fileName = file.fileName.replace(/-[\w-]{8}\.css$/, `-${digest}.css`);
        for (const page of files) if (page.type === "asset" && page.fileName.endsWith(".html")) page.source = Buffer.from(page.source).toString().replaceAll(file.fileName, fileName);
        delete bundle[file.fileName];
        this.emitFile({ type: "asset", fileName, source });
      }
    },
  };
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

/** A `.br` and a `.gz` beside each text file, which the server sends as they are. */
export function compressedCopies(): Plugin {
  let folder = "";
  return {
    name: "compressed-copies",
    apply: "build",
    configResolved(config) {
      folder = config.build.outDir;
    },
    async closeBundle() {
      for (const name of await readdir(folder, { recursive: true })) {
        if (!COMPRESSED.test(name)) continue;
        const path = join(folder, name);
        const content = await readFile(path);
        if (content.length < SMALLEST) continue;
        const size = { [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
        await writeFile(`${path}.br`, await promisify(brotliCompress)(content, { params: size }));
        await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: 9 }));
      }
    },
  };
}
