import { Stack, Text, Title } from "@mantine/core";

import { useSession } from "../../api/session";
import { Empty } from "../../components/States";
import { t } from "../../i18n";
import { NewToken } from "./NewToken";
import { TokenTable } from "./TokenTable";

/** Everybody's own API tokens. */
export default function TokensPage() {
  const session = useSession();
  if (session.open_access)
    return (
      <Empty title={t("There are no API tokens here")}>
        {t("This server was started with --open, without accounts: programs on this machine give a name, as people do.")}
      </Empty>
    );
  return (
    <Stack gap="sm">
      <Title order={1}>{t("Your API tokens")}</Title>
      <Text size="sm" className="dim" maw={720}>
        {t("A program with a token does in your name what the token's role may. It ends when you revoke it, when its time is over, and when your account is disabled.")}
      </Text>
      <NewToken role={session.role} />
      <TokenTable everybody={false} />
    </Stack>
  );
}
