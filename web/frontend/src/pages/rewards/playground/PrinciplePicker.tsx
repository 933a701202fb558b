import { Button, Chip, Group, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";

/** Principles as toggles: those that the chosen models tell of, and any other in one's own words. */
export function PrinciplePicker({
  models,
  own: custom,
  on,
  onChange,
}: {
  models: Schemas["OfferedModel"][];
  own: string[];
  on: string[];
  onChange: (change: { own?: string[]; principles?: string[] }) => void;
}) {
  const [text, setText] = useState("");
  const taking = models.filter((model) => model.principle_use !== "refused");
  if (taking.length === 0) return null;
  const offered = [...new Set([...taking.flatMap((model) => model.principles), ...custom, ...on])];
  const refusing = models.filter((model) => model.principle_use === "refused").map((model) => model.name);
  const add = () => {
    const written = text.trim();
    if (written === "") return;
    onChange({
      own: custom.includes(written) || offered.includes(written) ? custom : [...custom, written],
      principles: on.includes(written) ? on : [...on, written],
    });
    setText("");
  };
  return (
    <Stack gap={6} component="fieldset" style={{ border: 0, padding: 0, margin: 0, minWidth: 0 }}>
      <legend style={{ fontWeight: 600, marginBottom: 4 }}>{t("Principles")}</legend>
      {offered.length === 0 && (
        <Text size="xs" className="dim">
          {t("Which principles {{models}} was trained with is not recorded. Write one.", { models: taking.map((model) => model.name).join(", ") })}
        </Text>
      )}
      <Chip.Group multiple value={on} onChange={(principles) => onChange({ principles })}>
        <Group gap={6}>
          {offered.map((principle) => (
            <Chip key={principle} value={principle} size="xs" variant="light" styles={{ label: { height: "auto", whiteSpace: "normal", paddingBlock: 3 } }}>
              {principle}
            </Chip>
          ))}
        </Group>
      </Chip.Group>
      <Group gap={6} wrap="nowrap">
        <TextInput
          aria-label={t("Another principle")}
          placeholder={t("The response is correct.")}
          value={text}
          maxLength={2000}
          onChange={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
              event.preventDefault();
              add();
            }
          }}
          style={{ flexGrow: 1 }}
        />
        <Button variant="default" onClick={add} disabled={text.trim() === ""}>{t("Add")}</Button>
      </Group>
      {refusing.length > 0 && on.length > 0 && (
        <Text size="xs" className="dim">
          {t("Asked once and without a principle, as they take none: {{refusing}}.", { refusing: refusing.join(", ") })}
        </Text>
      )}
    </Stack>
  );
}
