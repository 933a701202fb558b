import { PasswordInput } from "@mantine/core";

import { t } from "../../i18n";

const SHORTEST = 10;
const BESIDE_THE_NAME = 6;

/** What the server would say of a new password, before it is sent; null: nothing. */
export function passwordProblem(name: string, password: string, again: string): string | null {
  const folded = password.normalize("NFKC").toLowerCase();
  const account = name.trim().toLowerCase();
  if ([...folded].length < SHORTEST) return t("{{shortest}} characters or more", { shortest: SHORTEST });
  if (account !== "" && [...folded.replaceAll(account, "")].length < BESIDE_THE_NAME) return t("It is little more than the name");
  return password === again ? null : t("The two are not the same");
}

interface NewPasswordProps {
  name: string;
  password: string;
  onChange: (password: string) => void;
}

/** The field of a password that is to be set, with what is asked of it. */
export function NewPassword({ name, password, onChange }: NewPasswordProps) {
  const problem = password === "" ? null : passwordProblem(name, password, password);
  return (
    <PasswordInput
      label={t("New password")}
      description={t("{{shortest}} characters or more; a sentence is good", { shortest: SHORTEST })}
      required
      autoComplete="new-password"
      value={password}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={problem}
    />
  );
}
