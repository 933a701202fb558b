import { Textarea } from "@mantine/core";
import type { RefObject } from "react";

import { t } from "../../i18n";

interface RationaleProps {
  value: string;
  onChange: (text: string) => void;
  disabled: boolean;
  box: RefObject<HTMLTextAreaElement | null>;
}

/** Why, in the annotator's own words. */
export function Rationale({ value, onChange, disabled, box }: RationaleProps) {
  return (
    <Textarea
      ref={box}
      dir="auto"
      label={t("Rationale")}
      description={t("Kept in this browser until the answer is stored. Escape: back to the keys.")}
      autosize
      minRows={1}
      maxRows={5}
      maxLength={20_000}
      mb="xs"
      value={value}
      disabled={disabled}
      onChange={(event) => onChange(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) event.currentTarget.blur();
      }}
    />
  );
}
