// The page's texts and their translations, part of `npm run check`:
//
//     node check_texts.mjs              fails on what is wrong
//     node check_texts.mjs missing de   the texts that a language lacks, by area, ready to be translated
//
// Each text of src goes through `t("...")`, `textKey("...")` or `<Trans i18nKey="...">`, each catalogue has each of them and
// no other, with the same {{values}} and <elements>, in a form for each number where it counts.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const ROOT = dirname(fileURLToPath(import.meta.url));
const SOURCES = join(ROOT, "src");
const CATALOGUES = join(SOURCES, "i18n");

/** Not texts, though they look like them: names, keys of the keyboard, values of styles and headers. */
const NAMES = /^(Assay|Enter|Escape|Tab|Shift|Control|Alt|Meta|Home|End|Delete|Backspace|Space|Accept|Authorization|Bearer|A|B|th, td|train|owner\/name|use strict)$/;
/** Attributes and properties that hold no text. */
const CODE_PLACES = new Set(["className", "style", "d", "points", "transform", "viewBox", "gridTemplateColumns", "queryKey", "to", "href", "src", "key", "accept", "transition", "font", "background", "border", "boxShadow", "gridColumn", "gridArea", "flex", "cols", "lang", "rel", "fontFamily", "fontFamilyMonospace"]);

const words = (text) => text.match(/\p{L}[\p{L}'’-]*/gu) ?? [];

/** Whether a string in the sources is something that people read: two words, or one with a capital. */
function isText(text) {
  const bare = text.trim();
  if (NAMES.test(bare) || /^[/.#@]|^assay |^use[A-Z]|^https?:|var\(--|^\d+(px|em|rem|%)|calc\(|^[\w-]+\/[\w.+-]+(;|$)/.test(bare)) return false;
  return /^\p{Lu}[\p{Ll}’'-]+( \p{Lu})?[.:…]?$/u.test(bare) || /\p{L}{2,}(['’]\p{L})?[,;:.)]*\s+[(]?\p{L}{2,}/u.test(bare) || /^\d+ \p{L}{3,}/u.test(bare);
}

/** Attributes that hold texts, of one word too. */
const TEXT_PLACES = new Set(["placeholder", "label", "title", "description", "aria-label", "alt", "error", "nothingFoundMessage", "what"]);

/** Whether a string is shown for its place: in such an attribute, among children, or where the other end of a condition is a text. */
function isShown(node) {
  if (!/\p{L}{2,}/u.test(node.text) || NAMES.test(node.text) || /^https?:|^assay /.test(node.text)) return false;
  const isSaid = (other) => (ts.isStringLiteralLike(other) ? isText(other.text) : ts.isCallExpression(other) && other.expression.getText() === "t");
  let inner = node;
  for (let outer = node.parent; ; [inner, outer] = [outer, outer.parent]) {
    if (ts.isConditionalExpression(outer) && outer.condition !== inner) {
      if (isSaid(outer.whenTrue === inner ? outer.whenFalse : outer.whenTrue)) return true;
    } else if (ts.isJsxExpression(outer)) return !ts.isJsxAttribute(outer.parent) || TEXT_PLACES.has(nameOf(outer.parent.name));
    else if (ts.isJsxAttribute(outer) || ts.isPropertyAssignment(outer)) return TEXT_PLACES.has(nameOf(outer.name));
    else if (!ts.isParenthesizedExpression(outer) && !ts.isBinaryExpression(outer)) return false;
  }
}

/** Whether a template's fixed parts are: one word beside a value is enough. */
const isTemplateText = (fixed) => !/xmlns=|var\(--|\b(solid|dashed|translate|rotate|rgba?|minmax|repeat|calc|color-mix|px)\b|^[/.#]|^assay |assay\./.test(fixed) && /(^|[\s(])\p{L}{2,}(\s|[,.:;)]|$)/u.test(fixed) && /\s/.test(fixed);

function* filesOf(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* filesOf(path);
    else if (/\.tsx?$/.test(entry.name) && !/\.test\.|\.d\.ts$/.test(entry.name)) yield path;
  }
}

/** The literals that an argument can be: itself, or both ends of a condition. Null: it is made elsewhere. */
function literals(node) {
  if (ts.isStringLiteralLike(node)) return [node.text];
  if (ts.isConditionalExpression(node)) {
    const both = [literals(node.whenTrue), literals(node.whenFalse)];
    return both.includes(null) ? null : both.flat();
  }
  if (ts.isParenthesizedExpression(node) || ts.isAsExpression(node)) return literals(node.expression);
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const [left, right] = [literals(node.left), literals(node.right)];
    return left?.length === 1 && right?.length === 1 ? [left[0] + right[0]] : null;
  }
  return null;
}

const nameOf = (node) => (node && (ts.isIdentifier(node) || ts.isStringLiteralLike(node)) ? node.text : (node?.getText?.() ?? ""));

/** What a file says: texts that are translated, and `loose` ones that are not. */
function textsOf(path) {
  const file = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true, path.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);
  const [keys, loose] = [[], []];
  const line = (node) => file.getLineAndCharacterOfPosition(node.getStart()).line + 1;
  const counts = (node) => node !== undefined && ts.isObjectLiteralExpression(node) && node.properties.some((one) => nameOf(one.name) === "count");

  function visit(node) {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isExportDeclaration(node) || ts.isInterfaceDeclaration(node)) return;
    if (ts.isCallExpression(node) && ts.isIdentifier(node.expression) && ["t", "textKey"].includes(node.expression.text)) {
      const [first, ...rest] = node.arguments;
      const texts = first === undefined ? [] : literals(first);
      if (texts !== null) for (const text of texts) keys.push({ text, counted: counts(rest[0]), line: line(node) });
      else if (ts.isTemplateExpression(first)) loose.push({ text: first.getText(), line: line(node), why: "a text with ${} has no translation" });
      else visit(first);
      rest.forEach(visit);
      return;
    }
    if (ts.isJsxOpeningLikeElement(node) && node.tagName.getText() === "Trans") {
      const given = Object.fromEntries(node.attributes.properties.filter(ts.isJsxAttribute).map((one) => [one.name.getText(), one.initializer]));
      const key = given.i18nKey && (ts.isJsxExpression(given.i18nKey) ? given.i18nKey.expression && literals(given.i18nKey.expression) : literals(given.i18nKey));
      if (!key) loose.push({ text: "<Trans>", line: line(node), why: "needs i18nKey with its text, values and components" });
      else for (const text of key) keys.push({ text, counted: "count" in given, line: line(node) });
      node.attributes.properties.forEach((one) => ts.isJsxAttribute(one) && one.name.getText() !== "i18nKey" && one.initializer && visit(one.initializer));
      return;
    }
    if (ts.isJsxText(node)) {
      if (words(node.text).some((word) => !/^\p{Lu}+$/u.test(word) && word.length > 1 && !NAMES.test(word))) loose.push({ text: node.text.trim().replace(/\s+/g, " "), line: line(node) });
      return;
    }
    if ((ts.isJsxAttribute(node) || ts.isPropertyAssignment(node)) && CODE_PLACES.has(nameOf(node.name))) return;
    if (ts.isJsxElement(node) && /^(code|Code|kbd|Kbd|pre)$/.test(node.openingElement.tagName.getText())) {
      node.openingElement.attributes.properties.forEach(visit);
      node.children.filter((child) => !ts.isJsxText(child)).forEach(visit);
      return;
    }
    if (ts.isBinaryExpression(node) && /^[=!]==?$/.test(node.operatorToken.getText())) return;
    if (ts.isCaseClause(node)) return void node.statements.forEach(visit);
    if (ts.isPropertyAssignment(node)) return visit(node.initializer);
    if (ts.isElementAccessExpression(node)) return visit(node.expression);
    if (ts.isStringLiteralLike(node)) {
      if (isText(node.text) || isShown(node)) loose.push({ text: node.text, line: line(node) });
      return;
    }
    if (ts.isTemplateExpression(node)) {
      const fixed = [node.head.text, ...node.templateSpans.map((span) => span.literal.text)].join("0");
      if (isTemplateText(fixed)) loose.push({ text: node.getText(), line: line(node) });
      node.templateSpans.forEach((span) => visit(span.expression));
      return;
    }
    ts.forEachChild(node, visit);
  }
  visit(file);
  return { keys, loose };
}

const read = (path) => JSON.parse(readFileSync(path, "utf8"));

/** The catalogues of a language by area; English has one, of the forms for numbers. */
function catalogueOf(language) {
  if (language === "en") return { en: read(join(CATALOGUES, "en.json")) };
  const folder = join(CATALOGUES, language);
  return Object.fromEntries(readdirSync(folder).filter((name) => name.endsWith(".json")).map((name) => [name.slice(0, -5), read(join(folder, name))]));
}

const placeholders = (text) => [...new Set(text.match(/\{\{\w+\}\}|<\/?\w+\/?>/g) ?? [])].sort().join(" ");
const forms = (language) => new Intl.PluralRules(language).resolvedOptions().pluralCategories.filter((one) => one !== "other");

/** The area, and so the catalogue, that a file's texts belong to. */
function areaOf(path) {
  const [top, area] = relative(SOURCES, path).split(/[\\/]/);
  return top === "pages" && existsSync(join(CATALOGUES, "de", `${area}.json`)) ? area : "app";
}

const used = new Map();
const problems = [];
for (const path of filesOf(SOURCES)) {
  const name = relative(ROOT, path);
  if (/^src.(i18n|testing)./.test(name)) continue;
  const { keys, loose } = textsOf(path);
  for (const { text, counted, line } of keys) {
    const known = used.get(text) ?? { places: [], counted: false, area: areaOf(path) };
    known.places.push(`${name}:${line}`);
    known.counted ||= counted;
    if (known.area !== areaOf(path)) known.area = "app";
    used.set(text, known);
  }
  for (const { text, line, why } of loose) problems.push(`${name}:${line}: ${why ?? "not translated"}: ${text}`);
}

const languages = ["en", ...readdirSync(CATALOGUES, { withFileTypes: true }).filter((one) => one.isDirectory()).map((one) => one.name)];
const missing = {};
for (const language of languages) {
  const areas = catalogueOf(language);
  const all = new Map();
  for (const [area, texts] of Object.entries(areas))
    for (const [key, text] of Object.entries(texts)) {
      const where = `i18n/${language}${language === "en" ? "" : `/${area}`}.json`;
      if (all.has(key) && all.get(key) !== text) problems.push(`${where}: has another translation elsewhere: ${key}`);
      all.set(key, text);
      const source = used.has(key) ? key : key.replace(/_(zero|one|two|few|many|other)$/, "");
      if (!used.has(source) || (source !== key && !used.get(source).counted)) problems.push(`${where}: no text of the page: ${key}`);
      else if (typeof text !== "string" || text === "") problems.push(`${where}: is empty: ${key}`);
      // A form for one number may leave the number out: "one vote".
      else if (placeholders(text) !== placeholders(source) && placeholders(text) !== placeholders(source.replaceAll("{{count}}", ""))) problems.push(`${where}: other {{values}} or <elements> than: ${key}`);
    }
  for (const [text, { counted, area, places }] of used) {
    const needed = counted ? forms(language).map((form) => `${text}_${form}`) : [];
    if (language !== "en" && !all.has(`${text}_other`)) needed.unshift(text);
    for (const key of needed.filter((one) => !all.has(one))) {
      ((missing[language] ??= {})[area] ??= {})[key] = "";
      problems.push(`i18n/${language}: has no translation of (${places[0]}): ${key}`);
    }
  }
}

if (process.argv[2] === "missing") console.log(JSON.stringify(missing[process.argv[3] ?? "de"] ?? {}, null, 2));
else {
  for (const problem of problems) console.error(problem);
  console.log(`${used.size} texts, ${problems.length} problems`);
  process.exit(problems.length ? 1 : 0);
}
