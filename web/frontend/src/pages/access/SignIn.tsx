import { Alert, Button, Center, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Trans } from "react-i18next";

import { api, body } from "../../api/client";
import { Failure } from "../../components/States";
import { t } from "../../i18n";
import { here, PROBLEM, signInAddress } from "./provider";

/** Name and password, or the provider that the server knows; where it was started without accounts, a name alone. */
export function SignIn({ openAccess, firstStart = false, provider = null }: { openAccess: boolean; firstStart?: boolean; provider?: string | null }) {
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
            <ProviderProblem />
            {signIn.error !== null && <Failure error={signIn.error} />}
            <Button type="submit" size="sm" loading={signIn.isPending}>
              {openAccess ? t("Begin") : t("Sign in")}
            </Button>
            {provider !== null && (
              <Button component="a" href={signInAddress(here())} variant="default">
                {t("Sign in by {{provider}}", { provider })}
              </Button>
            )}
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}

/** Why the provider's answer signed nobody in: the server puts a word for it into the address. */
function ProviderProblem() {
  const word = new URLSearchParams(window.location.search).get(PROBLEM);
  if (word === null) return null;
  const words: Record<string, string> = {
    expired: t("That sign-in took too long, or was begun in another browser. Begin again."),
    cancelled: t("The provider says that nobody signed in."),
    refused: t("The provider signed you in, and you have no access here: an admin can change that."),
    taken: t("There is an account of that name already. Sign in to it with its password, and choose the provider in the menu at your name."),
  };
  return (
    <Alert color="yellow" role="alert" title={t("The provider did not sign you in")}>
      {words[word] ?? t("The provider did not answer as it should: the server's log says why.")}
    </Alert>
  );
}
