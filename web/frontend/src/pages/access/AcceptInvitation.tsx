import { Alert, Anchor, Button, Center, Paper, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useLocation, useNavigate } from "react-router";

import { api, body } from "../../api/client";
import { Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";
import { NewPassword, passwordProblem } from "./NewPassword";
import { PasswordAgain } from "./PasswordAgain";
import { mayDo, roleName } from "./roles";

/**
 * What an invitation's link opens: the account is made here, or gets its new password. The token is the address's
 * fragment, which browsers do not send.
 */
export function AcceptInvitation() {
  const token = useLocation().hash.slice(1);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const { data, error } = useQuery({
    queryKey: ["invitation", token],
    queryFn: () => body(api.GET("/api/invitation", { params: { header: { "X-Invitation": token } } })),
    staleTime: Infinity,
  });
  const accept = useMutation({
    mutationFn: () => body(api.POST("/api/invitation", { body: { token, name: data?.name ?? name, password } })),
    onSuccess: (session) => {
      // What somebody else saw who was signed in here; not this link, which would be asked for again and is used up.
      queries.removeQueries({ predicate: (query) => query.queryKey[0] !== "invitation" });
      queries.setQueryData(["session"], session);
      void navigate("/", { replace: true });
    },
  });
  const whose = data?.name ?? name;
  const problem = passwordProblem(whose, password, again);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (problem === null) accept.mutate();
  };
  return (
    <Center mih="100vh" p="md" component="main">
      <Paper withBorder p="lg" w={400}>
        {data === undefined && !error && <Waiting what={t("The invitation is loading")} />}
        {data === undefined && error && (
          <Stack gap="sm">
            <Title order={1}>Assay</Title>
            <Alert color="yellow" title={t("This link cannot be used")} role="alert">
              {error.message}
            </Alert>
            <Anchor component={Link} to="/" size="sm">{t("Sign in")}</Anchor>
          </Stack>
        )}
        {data !== undefined && (
          <form onSubmit={submit}>
            <Stack gap="sm">
              <Title order={1}>{data.name === null ? t("Make your account") : t("Set a new password")}</Title>
              <Text size="sm" className="dim">
                {data.name === null
                  ? t("You were invited as {{role}}: you may {{do}}. Your votes are kept under your name.", { role: roleName(data.role), do: mayDo(data.role) })
                  : t("For the account {{name}}. Its sessions end, wherever they are.", { name: data.name })}
              </Text>
              {data.name === null ? (
                <TextInput
                  label={t("Name")}
                  description={t("How you sign in, and how others see your votes")}
                  required
                  maxLength={100}
                  autoComplete="username"
                  value={name}
                  onChange={(event) => setName(event.currentTarget.value)}
                  // eslint-disable-next-line jsx-a11y/no-autofocus -- the page is this form
                  autoFocus
                />
              ) : (
                <input type="text" hidden readOnly autoComplete="username" value={data.name} aria-hidden />
              )}
              <NewPassword name={whose} password={password} onChange={setPassword} />
              <PasswordAgain password={password} again={again} onChange={setAgain} />
              {accept.error !== null && <Failure error={accept.error} />}
              <Button type="submit" size="sm" loading={accept.isPending} disabled={whose.trim() === "" || problem !== null}>
                {data.name === null ? t("Make the account") : t("Set the password")}
              </Button>
            </Stack>
          </form>
        )}
      </Paper>
    </Center>
  );
}
