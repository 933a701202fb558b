import { Alert, Anchor, Stack, Tabs, Title } from "@mantine/core";
import { IconFolder, IconHistory, IconInfoCircle, IconKey, IconMail, IconUsers, IconWebhook } from "@tabler/icons-react";
import { Trans } from "react-i18next";
import { Link, Navigate, Route, Routes, useLocation, useNavigate } from "react-router";

import { useAllows, useSession } from "../../api/session";
import { Empty } from "../../components/States";
import { t } from "../../i18n";
import { Accounts } from "./Accounts";
import { AuditLog } from "./AuditLog";
import { Invitations } from "./Invitations";
import { Projects } from "./Projects";
import { roleName } from "./roles";
import { TokenTable } from "./TokenTable";
import { Webhooks } from "./Webhooks";

/** The area Access: accounts, projects, invitations, API tokens, webhooks, the audit log. */
export default function AccessPage() {
  const { open_access: open, role } = useSession();
  const admin = useAllows("administer");
  const navigate = useNavigate();
  const chosen = useLocation().pathname.split("/")[2] ?? "accounts";
  if (!admin)
    return (
      <Stack gap="sm">
        <Title order={1}>{t("Access")}</Title>
        <Empty title={t("Accounts are the administrators' business")}>
          <Trans
            i18nKey={"You are here as {{role}}: ask one of them for another role, or for an invitation for somebody else. Your own <a>password</a> you set yourself."}
            values={{ role: roleName(role) }}
            components={{ a: <Anchor component={Link} to="/password" size="sm" underline="always" /> }}
          />
        </Empty>
      </Stack>
    );
  return (
    <Stack gap="sm">
      <Title order={1}>{t("Access")}</Title>
      {open && (
        <Alert color="yellow" icon={<IconInfoCircle size={18} />} title={t("This server runs without accounts")}>
          <Trans
            i18nKey="It was started with --open: everybody on this machine may do everything, under the name they give. Accounts are managed on a server that was started without it, or with <code>assay account</code>."
            components={{ code: <code /> }}
          />
        </Alert>
      )}
      <Tabs value={chosen} onChange={(tab) => navigate(`/access/${tab}`)} keepMounted={false}>
        <Tabs.List>
          <Tabs.Tab value="accounts" leftSection={<IconUsers size={15} />}>{t("Accounts")}</Tabs.Tab>
          <Tabs.Tab value="projects" leftSection={<IconFolder size={15} />}>{t("Projects")}</Tabs.Tab>
          <Tabs.Tab value="invitations" leftSection={<IconMail size={15} />}>{t("Invitations")}</Tabs.Tab>
          <Tabs.Tab value="tokens" leftSection={<IconKey size={15} />}>{t("API tokens")}</Tabs.Tab>
          <Tabs.Tab value="webhooks" leftSection={<IconWebhook size={15} />}>{t("Webhooks")}</Tabs.Tab>
          <Tabs.Tab value="audit" leftSection={<IconHistory size={15} />}>{t("Audit log")}</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value={chosen} pt="sm">
          <Routes>
            <Route path="accounts" element={<Accounts managed={!open} />} />
            <Route path="projects" element={<Projects managed={!open} />} />
            <Route path="invitations" element={<Invitations managed={!open} />} />
            <Route path="tokens" element={<TokenTable everybody />} />
            <Route path="webhooks" element={<Webhooks />} />
            <Route path="audit" element={<AuditLog />} />
            <Route path="*" element={<Navigate to="/access/accounts" replace />} />
          </Routes>
        </Tabs.Panel>
      </Tabs>
    </Stack>
  );
}
