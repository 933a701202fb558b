import { Alert, Button, Center, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Trans } from "react-i18next";

import { api, body } from "../../api/client";
import { Failure } from "../../components/States";
import { t } from "../../i18n";

/** Name and password; where the server was started without accounts, a name alone. */
export function SignIn({ openAccess, firstStart = false }: { openAccess: boolean; firstStart?: boolean }) {
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const signIn = useMutation({
    mutationFn: () => body(api.POST("/api/session", { body: { name, password: openAccess ? null : password } })),
    onSuccess: (session) => queries.setQueryData(["session"], session),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    signIn.mutate();
  };
  return (
    <Center mih="100vh" p="md" component="main">
      <Paper withBorder p="lg" w={360}>
        <form onSubmit={submit}>
          <Stack gap="sm">
            <Title order={1}>Assay</Title>
            <Text size="sm" className="dim">
              {openAccess
                ? t("This server runs without accounts, for this machine alone. Your votes are kept under the name you give.")
                : t("Sign in with the name and password of your account.")}
            </Text>
            {firstStart && (
              <Alert color="yellow" title={t("There are no accounts yet")}>
                <Trans
                  i18nKey="<code>assay web</code> has printed a link, where it was started, by which the first administrator makes one. <code2>assay account add</code2> makes one too."
                  components={{ code: <code />, code2: <code /> }}
                />
              </Alert>
            )}
            <TextInput
              label={t("Name")}
              required
              autoComplete="username"
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              // eslint-disable-next-line jsx-a11y/no-autofocus -- the page is this form
              autoFocus
            />
            {!openAccess && (
              <PasswordInput
                label={t("Password")}
                required
                autoComplete="current-password"
                value={password}
                onChange={(event) => setPassword(event.currentTarget.value)}
              />
            )}
            {signIn.error !== null && <Failure error={signIn.error} />}
            <Button type="submit" size="sm" loading={signIn.isPending}>
              {openAccess ? t("Begin") : t("Sign in")}
            </Button>
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}
