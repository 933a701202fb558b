import "./Messages.css";

import { Badge } from "@mantine/core";
import { IconPhoto, IconTool } from "@tabler/icons-react";
import { createContext, useContext, useState, type ReactNode } from "react";

import type { Schemas } from "../api/client";
import { indented } from "../format/jsonText";
import { t } from "../i18n";
import { FormattedText } from "./FormattedText";

export type Part = Exclude<Schemas["ShownMessage"]["content"], string>[number];
/** A message: its text, or the parts of what is more than text. */
export interface Turn {
  role: string;
  content: string | Part[];
}

const COLOURS: Record<string, string> = { user: "teal", assistant: "blue", tool: "grape" };

/** Where an image of the workspace is loaded from: who annotates may load those of their item only. */
const ImageAddress = createContext((hash: string) => `/api/media/${encodeURIComponent(hash)}`);
export const ImagesFrom = ImageAddress.Provider;

/** Messages one below the other, each with its role; a single one of a role that is expected goes without. */
export function Messages({ turns, plain, expected }: { turns: Turn[]; plain: boolean; expected?: string }) {
  const called = new Map(turns.flatMap(({ content }) => (typeof content === "string" ? [] : content.flatMap((part) => (part.type === "tool_call" ? [[part.call_id, part.name] as const] : [])))));
  return turns.map((turn, n) => (
    <div key={n} className="message" data-role={turn.role}>
      {(turns.length > 1 || turn.role !== expected) && (
        <Badge size="xs" variant="light" color={COLOURS[turn.role] ?? "gray"} mb={4}>
          {turn.role}
        </Badge>
      )}
      {typeof turn.content === "string" ? (
        <Words text={turn.content} plain={plain} />
      ) : (
        turn.content.map((part, number) => <Shown key={number} part={part} plain={plain} called={called} />)
      )}
    </div>
  ));
}

/** A response: what it says where that is all of it, or its turns. */
export function ResponseTurns({ text, turns, plain }: { text: string; turns: Turn[] | null | undefined; plain: boolean }) {
  return <Messages turns={turns ?? [{ role: "assistant", content: text }]} plain={plain} expected="assistant" />;
}

function Words({ text, plain }: { text: string; plain: boolean }) {
  if (text.trim() === "") return <span className="dim message-empty">{t("(empty)")}</span>;
  return plain ? <div className="message-plain" dir="auto">{text}</div> : <FormattedText text={text} />;
}

interface ShownProps {
  part: Part;
  plain: boolean;
  /** The tools that were called, by the calls' ids: few sources name the tool with its result. */
  called: ReadonlyMap<string | undefined, string>;
}

function Shown({ part, plain, called }: ShownProps): ReactNode {
  switch (part.type) {
    case "text":
      return <Words text={part.text} plain={plain} />;
    case "thinking":
      return (
        <Folded title={t("Thinking")} note={t("{{count}} words", { count: part.text.split(/\s+/).filter(Boolean).length })}>
          <Words text={part.text} plain={plain} />
        </Folded>
      );
    case "image":
      return <Picture key={part.content_hash} image={part} />;
    case "tool_definition":
      return (
        <Folded title={t("Tool {{name}}", { name: part.name })} note={part.description}>
          {part.parameters === undefined ? <span className="dim">{t("no parameters")}</span> : <Written text={part.parameters} />}
        </Folded>
      );
    case "tool_call":
      return (
        <Tool label={t("Calls {{name}}", { name: part.name })} id={part.call_id}>
          <Written text={part.arguments} />
        </Tool>
      );
    case "tool_result": {
      const name = part.name ?? (part.call_id === undefined ? undefined : called.get(part.call_id));
      return (
        <Tool label={name === undefined ? t("Result") : t("Result of {{name}}", { name })} id={part.call_id}>
          <Written text={part.content} />
        </Tool>
      );
    }
    default:
      return <Unknown part={part} />;
  }
}

/** A part of a kind that came after this page was made. */
function Unknown({ part }: { part: { type?: string } }) {
  return (
    <Tool label={t("A part of type {{type}}, which this page does not draw", { type: part.type ?? "?" })}>
      <Written text={JSON.stringify(part)} />
    </Tool>
  );
}

/** What programs write: JSON in lines, anything else as it stands. */
function Written({ text }: { text: string }) {
  // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
  return text === "" ? <span className="dim">{t("(empty)")}</span> : <pre dir="auto" tabIndex={0}>{indented(text) ?? text}</pre>;
}

function Folded({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <details className="message-part">
      <summary>
        <strong>{title}</strong>
        {note !== undefined && (
          <bdi className="dim">
            {note}
          </bdi>
        )}
      </summary>
      {children}
    </details>
  );
}

function Tool({ label, id, children }: { label: string; id?: string; children: ReactNode }) {
  return (
    <div className="message-part" role="group" aria-label={label}>
      <div className="message-label">
        <IconTool size={14} aria-hidden />
        <strong>{label}</strong>
        {id !== undefined && <span className="dim">{id}</span>}
      </div>
      {children}
    </div>
  );
}

/** An image of the workspace; the address of one that was never fetched, which the page does not fetch either. */
function Picture({ image }: { image: Schemas["ShownImage"] }) {
  const address = useContext(ImageAddress);
  const [failed, setFailed] = useState(false);
  const hash = image.content_hash;
  if (hash === undefined || failed) {
    const url = image.url ?? "";
    return (
      <div className="message-part message-label">
        <IconPhoto size={14} aria-hidden />
        {hash !== undefined ? (
          <span>
            {t("Image {{name}} ({{type}}) cannot be shown here", { name: hash.slice(0, 12), type: image.media_type ?? t("of unknown type") })}
          </span>
        ) : /^https?:\/\//.test(url) ? (
          <a href={url} target="_blank" rel="noopener noreferrer nofollow">
            {t("Image, not fetched")}: <bdi>{url}</bdi>
          </a>
        ) : (
          <span>
            {t("Image, not fetched")}: <bdi>{url}</bdi>
          </span>
        )}
      </div>
    );
  }
  return (
    <a className="message-image" href={address(hash)} target="_blank" rel="noopener noreferrer">
      <img src={address(hash)} alt={t("Attachment {{name}}", { name: hash.slice(0, 12) })} onError={() => setFailed(true)} />
    </a>
  );
}
