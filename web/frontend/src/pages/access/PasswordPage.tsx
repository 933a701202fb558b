import { Button, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api } from "../../api/client";
import { useSession } from "../../api/session";
import { Empty, Failure } from "../../components/States";
import { t } from "../../i18n";
import { NewPassword, passwordProblem } from "./NewPassword";
import { PasswordAgain } from "./PasswordAgain";

/** Everybody's own password. */
export default function PasswordPage() {
  const session = useSession();
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const change = useMutation({
    mutationFn: () => api.PUT("/api/session/password", { body: { current, new: password } }),
    onSuccess: () => {
      setCurrent("");
      setPassword("");
      setAgain("");
      notifications.show({ message: t("Your password is changed; your other sessions have ended.") });
    },
  });
  if (session.open_access)
    return <Empty title={t("There are no passwords here")}>{t("This server was started with --open, without accounts.")}</Empty>;
  const problem = passwordProblem(session.name, password, again);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (problem === null) change.mutate();
  };
  return (
    <Stack gap="sm" maw={420}>
      <Title order={1}>{t("Change your password")}</Title>
      <Paper withBorder p="md">
        <form onSubmit={submit}>
          <Stack gap="sm">
            <Text size="sm" className="dim">{t("Your sessions on other machines end; this one stays.")}</Text>
            <input type="text" hidden readOnly autoComplete="username" value={session.name} aria-hidden />
            <PasswordInput
              label={t("Password until now")}
              required
              autoComplete="current-password"
              value={current}
              onChange={(event) => setCurrent(event.currentTarget.value)}
            />
            <NewPassword name={session.name} password={password} onChange={setPassword} />
            <PasswordAgain password={password} again={again} onChange={setAgain} />
            {change.error !== null && <Failure error={change.error} />}
            <Button type="submit" loading={change.isPending} disabled={current === "" || problem !== null}>
              {t("Change the password")}
            </Button>
          </Stack>
        </form>
      </Paper>
    </Stack>
  );
}
