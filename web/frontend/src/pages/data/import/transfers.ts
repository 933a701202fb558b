import { useSyncExternalStore } from "react";

import { api, body, type Schemas } from "../../../api/client";
import { Problem } from "../../../api/problems";
import { t } from "../../../i18n";

/** A file on its way. It goes on while other pages are shown; `file`: its name among the uploads, once it is there. */
export interface Transfer {
  key: number;
  name: string;
  size: number;
  done: number;
  state: "comparing" | "sending" | "waiting" | "complete" | "failed" | "stopped";
  known: boolean;
  file: string | null;
  error: string | null;
}

type Upload = Schemas["UploadReply"];
const AGAIN_MS = 1000;

let transfers: Transfer[] = [];
const stops = new Set<number>();
const listeners = new Set<() => void>();
let next = 1;

export function useTransfers(): Transfer[] {
  return useSyncExternalStore(subscribe, () => transfers);
}

export function isGoing({ state }: Transfer): boolean {
  return state === "comparing" || state === "sending" || state === "waiting";
}

/** Stops after the piece on its way; what has arrived stays on the server. */
export function stopTransfer(key: number): void {
  stops.add(key);
}

export function forgetTransfer(key: number): void {
  transfers = transfers.filter((one) => one.key !== key);
  tell();
}

/** Sends a file, from where an earlier attempt was cut. Resolves when it is there, has failed or was stopped. */
export async function transfer(file: File): Promise<Transfer> {
  const key = next++;
  transfers = [...transfers, { key, name: file.name, size: file.size, done: 0, state: "comparing", known: false, file: null, error: null }];
  window.addEventListener("beforeunload", warn);
  try {
    await send(file, (change) => update(key, change), () => stops.has(key));
  } catch (error) {
    update(key, { state: "failed", error: error instanceof Error ? error.message : String(error) });
  }
  if (!transfers.some(isGoing)) window.removeEventListener("beforeunload", warn);
  return transfers.find((one) => one.key === key)!;
}

async function send(file: File, change: (change: Partial<Transfer>) => void, stopped: () => boolean): Promise<void> {
  const { files, piece } = await patiently(() => body(api.GET("/api/uploads")), change, stopped);
  const digest = files.some(({ size }) => size === file.size) ? await digestOf(file, piece, change, stopped) : null;
  const asked = { name: file.name, size: file.size, modified: Math.max(0, Math.floor(file.lastModified)), digest };
  let upload = await patiently(() => body(api.POST("/api/uploads", { body: asked })), change, stopped);
  change({ known: upload.file !== null });
  while (upload.file === null) {
    if (stopped()) return change({ state: "stopped" });
    change({ state: "sending", done: upload.offset });
    upload = await sendPiece(file, upload, piece, change, stopped);
  }
  change({ state: "complete", done: file.size, file: upload.file });
}

async function sendPiece(file: File, upload: Upload, piece: number, change: (change: Partial<Transfer>) => void, stopped: () => boolean): Promise<Upload> {
  const params = { path: { upload_id: upload.id } };
  const content = await read(file, upload.offset, piece);
  try {
    return await body(
      api.PUT("/api/uploads/{upload_id}/pieces", {
        params: { ...params, query: { offset: upload.offset } },
        body: content as unknown as string,
        bodySerializer: (sent) => sent,
        headers: { "Content-Type": "application/octet-stream" },
      }),
    );
  } catch (error) {
    if (!(error instanceof Problem) || !(error.passing || error.status === 409 || error.status === 408)) throw error;
    // The link was cut, or the server has the piece already: it knows where to go on.
    change({ state: "waiting" });
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    return patiently(() => body(api.GET("/api/uploads/{upload_id}", { params })), change, stopped);
  }
}

/** Asks until the server answers. */
async function patiently<T>(ask: () => Promise<T>, change: (change: Partial<Transfer>) => void, stopped: () => boolean): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Problem && error.passing) || stopped()) throw error;
      change({ state: "waiting" });
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS * Math.min(10, 1 + tries)));
    }
  }
}

async function read(file: File, start: number, length: number): Promise<ArrayBuffer> {
  try {
    return await file.slice(start, start + length).arrayBuffer();
  } catch {
    throw new Error(t("The file can no longer be read: it was changed or moved. Choose it again."));
  }
}

/**
 * SHA-256 of the digests of its pieces, in hex, by which the server knows a file that it has. Null on a page over plain
 * http, where browsers do not compute it: the server then finds out when the file has arrived.
 */
async function digestOf(file: File, piece: number, change: (change: Partial<Transfer>) => void, stopped: () => boolean): Promise<string | null> {
  const subtle = globalThis.crypto?.subtle as SubtleCrypto | undefined;
  if (subtle === undefined) return null;
  const digests = new Uint8Array(32 * Math.ceil(file.size / piece));
  for (let start = 0, at = 0; start < file.size; start += piece, at += 32) {
    if (stopped()) return null;
    digests.set(new Uint8Array(await subtle.digest("SHA-256", new Uint8Array(await read(file, start, piece)))), at);
    change({ done: Math.min(file.size, start + piece) });
  }
  const whole = new Uint8Array(await subtle.digest("SHA-256", digests));
  return Array.from(whole, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function update(key: number, change: Partial<Transfer>): void {
  transfers = transfers.map((one) => (one.key === key ? { ...one, ...change } : one));
  tell();
}

function tell(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function warn(event: BeforeUnloadEvent): void {
  event.preventDefault();
}
