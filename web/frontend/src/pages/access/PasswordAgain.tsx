import { PasswordInput } from "@mantine/core";

import { t } from "../../i18n";

/** A new password for the second time, which finds slips of the finger. */
export function PasswordAgain({ password, again, onChange }: { password: string; again: string; onChange: (again: string) => void }) {
  return (
    <PasswordInput
      label={t("The same again")}
      required
      autoComplete="new-password"
      value={again}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={again !== "" && password !== again ? t("The two are not the same") : null}
    />
  );
}
