import { Autocomplete, Checkbox, NumberInput, Select, TagsInput, TextInput } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { t } from "../../i18n";
import type { Value } from "./useJobs";
import { labelOf } from "./words";

export type Field = Schemas["FormField"];

/** Settings whose suggestions are uploaded files. */
const FROM_UPLOADS = ["file", "path", "prompts"];

/** The control of one setting; empty stands for the command's default, which it shows. */
export function FieldControl({ field, label, value, onChange }: { field: Field; label?: string; value: Value | undefined; onChange: (value: Value) => void }) {
  const shared = {
    label: label ?? labelOf(field.name),
    description: [field.help, FROM_UPLOADS.includes(field.name) ? t("Upload files under Data, Import.") : ""].filter(Boolean).join(" ") || undefined,
    required: field.required,
    placeholder: placeholderOf(field),
  };
  if (field.type === "switch")
    return (
      <Checkbox
        label={shared.label}
        description={shared.description}
        checked={typeof value === "boolean" ? value : field.default === true}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
    );
  if (field.type === "whole" || field.type === "number")
    return (
      <NumberInput
        {...shared}
        min={field.least ?? undefined}
        max={field.most ?? undefined}
        allowDecimal={field.type === "number"}
        allowNegative={field.least === null || field.least < 0}
        value={typeof value === "number" || typeof value === "string" ? value : ""}
        onChange={(next) => onChange(next === "" ? null : next)}
      />
    );
  if (field.type === "list")
    return <TagsInput size="xs" {...shared} data={field.choices.length > 0 ? field.choices : field.suggestions} value={Array.isArray(value) ? value : typeof value === "string" && value !== "" ? [value] : []} onChange={onChange} clearable />;
  const text = typeof value === "string" ? value : "";
  if (field.choices.length > 0)
    return <Select {...shared} data={field.choices} value={text === "" ? null : text} onChange={onChange} clearable={!field.required} clearButtonProps={{ "aria-label": t("The default") }} />;
  if (field.suggestions.length > 0) return <Autocomplete size="xs" {...shared} data={[...new Set(field.suggestions)]} value={text} onChange={onChange} />;
  return <TextInput {...shared} value={text} onChange={(event) => onChange(event.currentTarget.value)} />;
}

function placeholderOf(field: Field): string | undefined {
  if (field.default !== null && field.default !== "" && !Array.isArray(field.default)) return String(field.default);
  return field.placeholder ?? undefined;
}
