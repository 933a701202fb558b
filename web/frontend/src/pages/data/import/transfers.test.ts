import { createHash } from "node:crypto";

import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { transfer } from "./transfers";

const PIECE = 4;
let stored: { name: string; content: string; size: number }[];
let upload: { name: string; size: number; content: string } | null;
let asked: string[];
/** What goes wrong with the next pieces. */
let trouble: ((request: Request) => Response | null)[];

beforeEach(() => {
  [stored, upload, asked, trouble] = [[], null, [], []];
  vi.useFakeTimers({ shouldAdvanceTime: true, advanceTimeDelta: 1000 });
  vi.stubGlobal("fetch", serve);
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function reply(): Response {
  const here = upload!;
  const complete = here.content.length === here.size;
  if (complete && !stored.some(({ name }) => name === here.name)) stored.push({ ...here });
  return Response.json({ id: "1", name: here.name, size: here.size, modified: 0, by: "ada", offset: here.content.length, file: complete ? here.name : null });
}

async function serve(request: Request): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  asked.push(`${request.method} ${pathname}${searchParams.has("offset") ? ` ${searchParams.get("offset")}` : ""}`);
  if (request.method === "PUT") {
    const wrong = trouble.shift()?.(request);
    if (wrong) return wrong;
    if (Number(searchParams.get("offset")) !== upload!.content.length) return Response.json({ code: "conflict", detail: "goes on elsewhere" }, { status: 409 });
    upload!.content += await request.text();
    return reply();
  }
  if (request.method === "POST") {
    const { name, size, digest } = (await request.json()) as { name: string; size: number; digest: string | null };
    const same = stored.find((file) => digest === digestOf(file.content));
    upload = same ?? (upload?.size === size && upload.name === name ? upload : { name, size, content: "" });
    return reply();
  }
  if (pathname === "/api/uploads") return Response.json({ files: stored, unfinished: [], room: 1e9, most_bytes: 1e9, piece: PIECE });
  return reply();
}

function digestOf(content: string): string {
  const sha = (part: string | Buffer) => createHash("sha256").update(part).digest();
  const pieces = content.match(/.{1,4}/gs) ?? [];
  return sha(Buffer.concat(pieces.map(sha))).toString("hex");
}

it("sends a file in pieces, and goes on after a cut link where the server is", async () => {
  const cut = () => {
    throw new TypeError("Failed to fetch");
  };
  const taken = (request: Request) => {
    void request;
    upload!.content += "efgh"; // the server has the piece, its answer is lost
    return Response.json({}, { status: 503 });
  };
  trouble = [() => null, cut, taken];
  const done = await transfer(new File(["abcdefghij"], "a.jsonl"));
  expect([done.state, done.file, done.known]).toEqual(["complete", "a.jsonl", false]);
  expect(stored[0]?.content).toBe("abcdefghij");
  expect(asked.filter((line) => line.startsWith("PUT"))).toEqual(["PUT /api/uploads/1/pieces 0", "PUT /api/uploads/1/pieces 4", "PUT /api/uploads/1/pieces 4", "PUT /api/uploads/1/pieces 8"]);
});

it("sends nothing of a file that the server has", async () => {
  stored = [{ name: "old.jsonl", content: "abcdefghij", size: 10 }];
  const done = await transfer(new File(["abcdefghij"], "new.jsonl"));
  expect([done.state, done.file, done.known]).toEqual(["complete", "old.jsonl", true]);
  expect(asked).toEqual(["GET /api/uploads", "POST /api/uploads"]);
});

it("goes on with what an earlier page has sent", async () => {
  upload = { name: "a.jsonl", size: 10, content: "abcd" };
  expect((await transfer(new File(["abcdefghij"], "a.jsonl"))).state).toBe("complete");
  expect(asked.filter((line) => line.startsWith("PUT"))[0]).toBe("PUT /api/uploads/1/pieces 4");
});

it("says a refusal in the server's words", async () => {
  trouble = [() => Response.json({ code: "bad_input", detail: "the disk is full: nothing of the file was kept" }, { status: 422 })];
  const failed = await transfer(new File(["abc"], "a.jsonl"));
  expect([failed.state, failed.error]).toEqual(["failed", "the disk is full: nothing of the file was kept"]);
});
