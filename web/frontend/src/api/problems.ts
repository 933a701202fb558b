import { t } from "../i18n";
import { inLanguage } from "./serverMessages";

/** An error reply of the server (RFC 9457), or a server that cannot be reached. */
export class Problem extends Error {
  constructor(
    /** HTTP status; 0 when nothing answered. */
    readonly status: number,
    readonly code: string,
    detail: string,
    /** Seconds after which another try makes sense. */
    readonly retryAfter: number | null = null,
  ) {
    super(detail);
  }

  /** Somebody else holds the store, or the server is starting again: the same request may succeed in a moment. */
  get passing(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503;
  }
}

export async function problemOf(response: Response): Promise<Problem> {
  const wait = Number(response.headers.get("Retry-After"));
  const after = Number.isFinite(wait) && wait > 0 ? wait : null;
  try {
    const body = (await response.json()) as Reply;
    return new Problem(response.status, body.code ?? "error", inLanguage(inWords(body) ?? response.statusText), after);
  } catch {
    return new Problem(response.status, "error", response.statusText || t("status {{status}}", { status: response.status }), after);
  }
}

interface Reply {
  code?: string;
  detail?: string;
  errors?: { field: string; message: string }[];
}

/** Without the names that programs give to what they send: a page's reader has never seen "field 'ticket'". */
function inWords({ detail, errors }: Reply): string | undefined {
  const first = errors?.[0];
  if (first === undefined) return detail?.replace(/^field '[^']*': /, "");
  const name = first.field.split(".").findLast((part) => !/^\d+$/.test(part)) ?? "";
  return (name === "" ? "" : `${name.replaceAll("_", " ")}: `) + first.message;
}
