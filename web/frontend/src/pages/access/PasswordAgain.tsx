import { PasswordInput } from "@mantine/core";

/** A new password for the second time, which finds slips of the finger. */
export function PasswordAgain({ password, again, onChange }: { password: string; again: string; onChange: (again: string) => void }) {
  return (
    <PasswordInput
      label="The same again"
      required
      autoComplete="new-password"
      value={again}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={again !== "" && password !== again ? "The two are not the same" : null}
    />
  );
}
