import type { Schemas } from "../../../api/client";

/** What is to be imported and how, as the form has it. */
export interface Asked {
  file: string;
  format: string;
  mapping: Record<string, string>;
  values: Record<string, string>;
  split: string;
  subset: string;
  encoding: string;
}

export const AS_RECOGNISED: Omit<Asked, "file"> = { format: "auto", mapping: {}, values: {}, split: "", subset: "", encoding: "" };

export function previewBody(asked: Asked): Schemas["ImportFile"] {
  const given = (text: string) => (text.trim() === "" ? null : text.trim());
  return { ...asked, split: given(asked.split), subset: given(asked.subset), encoding: given(asked.encoding) };
}

/** Gives a column its role: no other column has it any more, and the column no other. */
export function withRole(asked: Asked, column: string, role: string | null): Asked {
  const mapping = Object.fromEntries(Object.entries(asked.mapping).filter(([ours, theirs]) => ours !== role && theirs !== column));
  if (role !== null) mapping[role] = column;
  return { ...asked, mapping, values: "label" in mapping ? asked.values : {} };
}

/** The settings of the job `import`: the options of `assay data import`. */
export function importSettings(asked: Asked, source: string, consent: boolean): Record<string, string | string[] | boolean | null> {
  const pairs = (of: Record<string, string>) => Object.entries(of).map(([name, value]) => `${name}=${value}`);
  const { split, subset, encoding } = previewBody(asked);
  return {
    path: asked.file,
    format: asked.format === "auto" ? null : asked.format,
    map: pairs(asked.mapping),
    values: pairs(asked.values),
    source: source.trim() === "" ? null : source.trim(),
    split: split ?? null,
    subset: subset ?? null,
    encoding: encoding ?? null,
    yes: consent ? true : null,
  };
}
