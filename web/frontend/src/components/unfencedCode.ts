/**
 * Code that was written without fences, put between them, so that it keeps its indentation and its signs: Python, languages
 * with braces, JSON, tracebacks. Rather too little than too much: a run begins at a line that is hardly prose, and Markdown
 * (lists, quotes, tables, headings, fences, what is indented by four already) is never part of one.
 */
export function withFences(text: string): string {
  if (!MAYBE.test(text)) return text;
  const lines = text.split("\n");
  const out: string[] = [];
  let fence: string | null = null;
  for (let at = 0; at < lines.length; ) {
    const line = lines[at]!;
    const mark = /^[ \t]*(?:(?:[-*+]|\d+[.)]|>) +)*(`{3,}|~{3,})/.exec(line)?.[1] ?? null;
    if (fence !== null || mark !== null) {
      if (fence === null) fence = mark;
      else if (mark?.startsWith(fence) && /^[ \t>]*[`~]+\s*$/.test(line)) fence = null;
      out.push(line);
      at += 1;
      continue;
    }
    const run = runAt(lines, at);
    if (run === null) {
      out.push(line);
      at += 1;
    } else {
      const code = lines.slice(at, run.end);
      const around = code.some((one) => one.includes("```")) ? "~~~~~~" : "```";
      if (out.length > 0 && out.at(-1)!.trim() !== "") out.push("");
      out.push(around + run.language, ...code, around, "");
      at = run.end;
    }
  }
  return out.join("\n");
}

interface Run {
  /** The first line after it. */
  end: number;
  language: string;
}

const MAYBE = /^(?:Traceback \(|(?:async )?def |class |import |from |if |for |while |with |try:|@|#include|[{[]|.*[{;]\s*$)/m;

const TRACEBACK = /^Traceback \(most recent call last\):$/;
/** A line that opens a block of Python. */
const PYTHON_OPENS = /^(?:(?:async )?def \w+\(.*|class \w+(?:\(.*\))?:|(?:if|elif|while) .+:|else:|try:|finally:|except(?: .+)?:|for [\w, ()]+ in .+:|with [\w.]+\(.*\)(?: as [\w, ()]+)?:)\s*(?:#.*)?$/;
/** A line of Python at the left edge that opens none. */
const PYTHON_LINE = /^(?:import [\w.]+(?: as \w+)?(?:, [\w.]+)*|from [\w.]+ import (?:\(|[\w, *]+)|@\w[\w.]*(?:\(.*\))?|(?:return|raise|assert|yield|del|pass|break|continue)\b[^.]*|[A-Za-z_][\w.]*(?:\[.*\])?(?:: [\w[\], ]+)? [-+*/|&]?= \S.*|[A-Za-z_][\w.]*\(.*\)(?:\.\w+\(.*\))*|\)|\]|\}|"""|'''.*)\s*(?:#.*)?$/;
const COMMENT = /^\s*(?:#|\/\/|\/\*|\*\/|\* )/;
/** A line of a language with braces that cannot be prose. */
const BRACES_BEGIN = /^(?:#include\s*[<"].*|#define \w.*|(?:using|package|import) [\w.:*{} ]+;|(?:public|private|protected|static|final|abstract|export|async|default|inline|const|extern|template)\b.*[{;(]\s*|(?:const|let|var) [\w{}[\], ]+ = .*|(?:function\*?|fn|func|class|struct|enum|interface|impl|namespace|trait|type) [\w<>:]+.*\{\s*|[\w:*&<>[\], ]+ [*&]?\w+\([^)]*\)\s*(?:const )?(?:->.*)?\{\s*|(?:if|for|while|switch) ?\(.*\)\s*\{\s*|[\w.]+\(.*\(.*\) ?(?:=>|\{).*\{\s*)$/;
const BRACES_LINE = /^(?:.*[;{}]|[})\]]+[;,)]*.*|(?:\}\s*)?(?:else|catch|finally).*)\s*(?:\/\/.*)?$/;
const MARKDOWN = /^\s*(?:[-*+] |\d+[.)] |>|\||#{1,6} |```|~~~)/;
const INDENTED = /^(?: {2,}|\t)/;

function runAt(lines: string[], at: number): Run | null {
  const line = lines[at]!;
  if (line === "" || /^\s/.test(line)) return null;
  return tracebackAt(lines, at) ?? jsonAt(lines, at) ?? pythonAt(lines, at) ?? bracesAt(lines, at);
}

function tracebackAt(lines: string[], at: number): Run | null {
  if (!TRACEBACK.test(lines[at]!)) return null;
  let end = at + 1;
  while (end < lines.length && /^\s+\S/.test(lines[end]!)) end++;
  // The error itself, which may have several lines of words.
  if (end < lines.length && /^[\w.]+(?::.*)?$/.test(lines[end]!)) end++;
  return end > at + 1 ? { end, language: "python" } : null;
}

function jsonAt(lines: string[], at: number): Run | null {
  if (!/^[{[]\s*(?:"|[{[]|$)/.test(lines[at]!)) return null;
  let depth = 0;
  for (let end = at; end < lines.length; end++) {
    for (const sign of lines[end]!.replace(/"(?:[^"\\]|\\.)*"/g, "")) depth += "{[".includes(sign) ? 1 : "}]".includes(sign) ? -1 : 0;
    if (depth > 0) continue;
    if (end === at) return null; // one line reads well as it is
    try {
      JSON.parse(lines.slice(at, end + 1).join("\n"));
      return { end: end + 1, language: "json" };
    } catch {
      return null;
    }
  }
  return null;
}

function pythonAt(lines: string[], at: number): Run | null {
  let end = at; // after the last line that belongs to it
  let opened = false;
  let brackets = 0;
  let certain = false; // a block that says something
  let flat = 0; // lines at the left edge that could be nothing else for long
  for (let now = at; now < lines.length; now++) {
    const line = lines[now]!;
    if (line.trim() === "") continue;
    const inside = now > at && (brackets > 0 || (opened && INDENTED.test(line)));
    const comment = COMMENT.test(line) && (inside || codeFollows(lines, now));
    if (brackets <= 0 && MARKDOWN.test(line) && !comment) break;
    if (inside) certain ||= isPython(line.trim());
    else if (PYTHON_OPENS.test(line)) {
      if (!INDENTED.test(nextWritten(lines, now)) || (MARKDOWN.test(nextWritten(lines, now)) && !COMMENT.test(nextWritten(lines, now)))) break;
      certain ||= /^(?:async )?def |^class .*\(/.test(line);
      opened = true;
    } else if (PYTHON_LINE.test(line)) flat += /^(?:import|from|@)/.test(line) ? 1.5 : /[("'\[]/.test(line) ? 1 : 0.1; // "a = b + 1" may be mathematics
    else if (!comment) break;
    brackets += balance(line);
    end = now + 1;
  }
  return end > at + 1 && (certain || flat >= 2.5) ? { end, language: "python" } : null;
}

function isPython(line: string): boolean {
  return PYTHON_LINE.test(line) || PYTHON_OPENS.test(line);
}

function bracesAt(lines: string[], at: number): Run | null {
  if (!BRACES_BEGIN.test(lines[at]!)) return null;
  let end = at;
  let depth = 0;
  let deep = false;
  let written = 0;
  for (let now = at; now < lines.length; now++) {
    const line = lines[now]!;
    if (line.trim() === "") continue;
    const code = BRACES_BEGIN.test(line) || BRACES_LINE.test(line) || COMMENT.test(line);
    if (depth <= 0 && (!code || (MARKDOWN.test(line) && !/^#(?:include|define)/.test(line)))) break;
    if (depth > 0 && !code && !INDENTED.test(line)) break; // prose after a block that was never closed
    depth += balance(line);
    deep ||= depth > 0;
    written += 1;
    end = now + 1;
  }
  if (end === at + 1 || !(deep || written >= 3)) return null;
  return { end, language: languageOf(lines.slice(at, end).join("\n")) };
}

function languageOf(code: string): string {
  if (/^#include|\bstd::|\bprintf\(|\b(?:int|void|char) \*?\w+\(/m.test(code)) return "cpp";
  if (/\bpublic (?:static|class|void)|System\.out/.test(code)) return "java";
  if (/\b(?:const|let|var|function|console\.)|=>/.test(code)) return "javascript";
  if (/\bfn \w+|\blet mut\b|println!/.test(code)) return "rust";
  return /\bfunc \w+|:=/.test(code) ? "go" : "";
}

/** How many brackets a line leaves open. */
function balance(line: string): number {
  let open = 0;
  for (const sign of line.replace(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g, "")) open += "([{".includes(sign) ? 1 : ")]}".includes(sign) ? -1 : 0;
  return open;
}

function nextWritten(lines: string[], at: number): string {
  for (let next = at + 1; next < lines.length; next++) if (lines[next]!.trim() !== "") return lines[next]!;
  return "";
}

function codeFollows(lines: string[], at: number): boolean {
  const next = lines[at + 1] ?? "";
  return isPython(next.trim()) || INDENTED.test(next);
}
