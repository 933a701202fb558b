import { Alert, Button, Center, Paper, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, body } from "../../api/client";
import { Failure } from "../../components/States";

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
                ? "This server runs without accounts, for this machine alone. Your votes are kept under the name you give."
                : "Sign in with the name and password of your account."}
            </Text>
            {firstStart && (
              <Alert color="yellow" title="There are no accounts yet">
                <code>assay web</code> has printed a link, where it was started, by which the first administrator makes
                one. <code>assay account add</code> makes one too.
              </Alert>
            )}
            <TextInput
              label="Name"
              required
              autoComplete="username"
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              // eslint-disable-next-line jsx-a11y/no-autofocus -- the page is this form
              autoFocus
            />
            {!openAccess && (
              <PasswordInput
                label="Password"
                required
                autoComplete="current-password"
                value={password}
                onChange={(event) => setPassword(event.currentTarget.value)}
              />
            )}
            {signIn.error !== null && <Failure error={signIn.error} />}
            <Button type="submit" size="sm" loading={signIn.isPending}>
              {openAccess ? "Begin" : "Sign in"}
            </Button>
          </Stack>
        </form>
      </Paper>
    </Center>
  );
}
